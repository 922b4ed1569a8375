"""Claims in parts, and a judge's word on them."""

from __future__ import annotations

from shared.wire.conflicts import Settlement, Settlements
from shared.wire.events import Judged
from shared.wire.handoff import Citation, Claim
from tests.doubles.life import Life


def a_claim(name: str, value: str, unit: str | None = None, about: str = "Eiffel Tower", what: str = "height", date: str = "2022") -> Claim:
    """`a_claim("a.c1", "330", "m")`, with a source of its own."""
    said = f"{about}: {what}: {value} {unit or ''}".strip()
    source = Citation(source=f"{name.partition('.')[0]}.md", digest=name.encode().hex().ljust(64, "0"), start=0, end=len(said), quote=said)
    return Claim(id=name, text=f"{said}.", sources=(source,), subject=about, attribute=what, value=value, unit=unit, date=date)


def settles(life: Life, **stands: str) -> None:
    """`settles(life, k1="a.c1", k2="")`: k2 stays disputed."""
    said = tuple(Settlement(conflict=one, stands=tuple(claims.split()), why="Measured.") for one, claims in stands.items())
    result = life.finishes("judge", output=Settlements(settlements=said).model_dump(mode="json"))
    life.happens(Judged(result=result, settled=tuple(one.conflict for one in said if one.stands)))
