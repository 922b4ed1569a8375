"""A join as a workflow's author writes it, before it is known how many copies there will be of a step that is repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import yaml
from pydantic import JsonValue, ValidationError

from handoff_queue.shared.text.durations import InvalidDuration, whole_seconds_of
from handoff_queue.shared.text.suggestions import suggestion
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.join import Join, join_problems
from handoff_queue.shared.types.message import problems_of
from handoff_queue.supervisor.text.plain_yaml import fields_of, text_of, texts_of

FIELDS = ("enough", "at_least", "within_s", "must")
_PERCENT = re.compile(r"(100|[1-9][0-9]?) ?%")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Share:
    """So many, or so many of a hundred."""

    number: int
    is_percent: bool = False

    def of(self, parts: int) -> int:
        """A part of one counts as one."""
        return max(1, -(-parts * self.number // 100)) if self.is_percent else self.number


@dataclass(frozen=True, slots=True)
class WrittenJoin:
    """What a fan-in needs."""

    where: str
    """File, line and step, for errors."""
    enough: Share | None = None
    at_least: Share = Share(1)
    within_s: int | None = None
    must: tuple[StepId, ...] = ()
    """Of a step that is repeated, all copies."""

    def of(self, copies: Mapping[StepId, tuple[StepId, ...]]) -> Join:
        """For one job. `copies`: of every step that it waits for.

        Raises:
            UserError: it needs more than there are, or a step that it does not wait for.
        """
        parts = tuple(chain.from_iterable(copies.values()))
        try:
            join = Join(
                enough=self.enough.of(len(parts)) if self.enough else None,
                at_least=self.at_least.of(len(parts)),
                within_s=self.within_s,
                must=tuple(chain.from_iterable(copies.get(step, (step,)) for step in self.must)),
            )
        except ValidationError as error:
            raise UserError(f"{self.where}: {problems_of(error)}; correct it") from error
        if found := join_problems(join, parts):
            raise UserError(f"{self.where}: it {'; it '.join(found)}")
        return join


def counted(join: JsonValue, parts: int) -> JsonValue:
    """A join in JSON's values, as `Join` takes it: parts of a whole (`80%`) as numbers, one name alone as a list of one. `parts`: how many
    results there can be. What is none of these stays as it is, for `Join` to refuse.
    """
    if not isinstance(join, dict):
        return join
    shares = {
        name: _PERCENT.fullmatch(text.strip())
        for name in ("enough", "at_least")
        if isinstance(text := join.get(name), str)
    }
    numbers = {
        name: Share(int(percent[1]), is_percent=True).of(parts)
        for name, percent in shares.items()
        if percent
    }
    must: dict[str, JsonValue] = {"must": [one]} if isinstance(one := join.get("must"), str) else {}
    return {**join, **numbers, **must}


def join_from(where: str, node: yaml.Node) -> WrittenJoin:
    """Raises: UserError: what is wrong with it, and how to mend it."""
    fields = fields_of(where, node)
    if unknown := [name for name in fields if name not in FIELDS]:
        mend = suggestion(unknown[0], FIELDS)
        raise UserError(f"{where}: there is no field {unknown[0]!r:.80}; {mend}")
    if not fields:
        raise UserError(
            f"{where}: says nothing; write `enough: 3`, `within_s: 60` or the like, or leave it out"
        )
    return WrittenJoin(
        where=where,
        enough=_share(f"{where}: enough", fields["enough"]) if "enough" in fields else None,
        at_least=_share(f"{where}: at_least", fields["at_least"])
        if "at_least" in fields
        else Share(1),
        within_s=_seconds(f"{where}: within_s", fields["within_s"])
        if "within_s" in fields
        else None,
        must=tuple(map(StepId, texts_of(f"{where}: must", fields["must"])))
        if "must" in fields
        else (),
    )


def _seconds(where: str, node: yaml.Node) -> int:
    """Return a duration in seconds. Raises: UserError: the text is not a duration."""
    try:
        return whole_seconds_of(text_of(where, node))
    except InvalidDuration as error:
        raise UserError(f"{where}: {error}") from error


def _share(where: str, node: yaml.Node) -> Share:
    text = text_of(where, node)
    if percent := _PERCENT.fullmatch(text):
        return Share(int(percent[1]), is_percent=True)
    if _COUNT.fullmatch(text):
        return Share(int(text))
    raise UserError(
        f"{where} must be a number of results, such as 3, or a part of them, such as 80%"
    )
