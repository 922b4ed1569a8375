"""Amounts in fields of forms: positive numbers up to a largest value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from handoff_queue.supervisor.serve.problem_documents import Problem

_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Amount:
    """A field of a form with an amount."""

    limit: str
    """The limit of the job that the field sets."""
    factor: int
    """Units of the limit in one unit of the field."""
    most: int
    """The largest amount, in units of the field."""
    example: str

    def parse(self, name: str, text: str) -> int:
        """Return the limit for the text of a field.

        Args:
            name: name of the field, for the problem.

        Raises:
            Problem: the text is no number, or out of range.
        """
        if not _AMOUNT.fullmatch(text) or not 0 < float(text) <= self.most:
            problem = f"write a number above 0 and up to {self.most:,}, such as {self.example}"
            raise Problem(422, problem, errors=[(f"#/{name}", problem)])
        return max(1, round(float(text) * self.factor))
