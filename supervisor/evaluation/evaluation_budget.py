"""One amount of money for many jobs: what all of them may cost together is never more than it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Purse:
    """Each job that is begun sets its own limit aside; what it has not spent comes back when it ends. Amounts in micro-dollars."""

    total: int | None = None
    """None: as much as they like."""
    slots: int = 1
    """Jobs at once."""
    spent: int = 0
    aside: Mapping[str, int] = field(default_factory=dict)
    """By job."""

    @property
    def left(self) -> int | None:
        """What nobody has spent or set aside; None: without end."""
        return (
            None
            if self.total is None
            else max(0, self.total - self.spent - sum(self.aside.values()))
        )

    @property
    def next_limit(self) -> int | None:
        """Of the job that is begun next: a slot's share of what is not spent. None: it needs none. 0: it cannot be begun now."""
        if self.total is None or self.left is None:
            return None
        return max(0, min(self.left, (self.total - self.spent) // self.slots))

    def began(self, job: str, limit: int | None) -> Purse:
        """`limit`: None sets nothing aside."""
        return (
            self
            if self.total is None or limit is None
            else replace(self, aside={**self.aside, job: limit})
        )

    def ended(self, job: str, cost: int | None) -> Purse:
        """`cost`: None is not known, and then its whole limit counts."""
        rest = {name: limit for name, limit in self.aside.items() if name != job}
        return replace(
            self, aside=rest, spent=self.spent + (self.aside.get(job, 0) if cost is None else cost)
        )
