"""Joins of a workflow: the results that a fan-in needs, in numbers or percentages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import yaml
from pydantic import JsonValue, ValidationError

from handoff_queue.shared.text.times import InvalidDuration, parse_whole_seconds
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.plan_validation import find_join_problems
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.text.plain_yaml import get_fields, get_text, get_texts

FIELDS = ("enough", "at_least", "within_s", "must")
"""Fields of a join."""
_PERCENT = re.compile(r"(100|[1-9][0-9]?) ?%")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Share:
    """A number or a percentage of results."""

    number: int
    is_percent: bool = False

    def compute(self, parts: int) -> int:
        """Return the number of results.

        A percentage is rounded up, and is at least one result.

        Args:
            parts: the possible results.
        """
        if self.is_percent:
            return max(1, -(-parts * self.number // 100))
        return self.number


@dataclass(frozen=True, slots=True)
class JoinSyntax:
    """Results that a fan-in needs, as written in a workflow."""

    where: str
    """File, line and step, for errors."""
    enough: Share | None = None
    at_least: Share = Share(1)
    within_s: int | None = None
    must: tuple[StepId, ...] = ()
    """Required steps. A repeated step stands for all its copies."""

    def build_join(self, copies: Mapping[StepId, tuple[StepId, ...]]) -> Join:
        """Return the join of one job.

        Args:
            copies: copies of every dependency.

        Raises:
            UserError: the join needs more results than there are, or names a step that is not
                a dependency.
        """
        parts = tuple(chain.from_iterable(copies.values()))
        enough_count = None
        if self.enough:
            enough_count = self.enough.compute(len(parts))
        must: list[StepId] = []
        for step in self.must:
            must += copies.get(step, (step,))
        try:
            join = Join(
                enough=enough_count,
                at_least=self.at_least.compute(len(parts)),
                within_s=self.within_s,
                must=tuple(must),
            )
        except ValidationError as error:
            raise UserError(
                f"{self.where}: {describe_problems(error, shows_values=True)}; correct it"
            ) from error
        problems = find_join_problems(join, parts)
        if problems:
            raise UserError(f"{self.where}: it {'; it '.join(problems)}")
        return join


def convert_join(join: JsonValue, parts: int) -> JsonValue:
    """Return a join in the form that `Join` takes: percentages (`80%`) become numbers, and a
    single name in `must` becomes a list. All other values stay as they are.

    Args:
        parts: number of possible results.
    """
    if not isinstance(join, dict):
        return join
    changed_join = dict(join)
    for name in ("enough", "at_least"):
        text = join.get(name)
        if not isinstance(text, str):
            continue
        percent = _PERCENT.fullmatch(text.strip())
        if percent:
            changed_join[name] = Share(int(percent[1]), is_percent=True).compute(parts)
    must = join.get("must")
    if isinstance(must, str):
        changed_join["must"] = [must]
    return changed_join


def parse_join(where: str, node: yaml.Node) -> JoinSyntax:
    """Parse a join.

    Args:
        where: file, line and step, for errors.

    Raises:
        UserError: the first fault, and its correction.
    """
    fields = get_fields(where, node)
    for name in fields:
        if name not in FIELDS:
            advice = suggest_name(name, FIELDS)
            raise UserError(f"{where}: there is no field {name!r:.80}; {advice}")
    if not fields:
        raise UserError(
            f"{where}: is empty; write `enough: 3`, `within_s: 60` or the like, or leave it out"
        )
    enough_share: Share | None = None
    at_least = Share(1)
    within_s: int | None = None
    must: tuple[StepId, ...] = ()
    if "enough" in fields:
        enough_share = _parse_share(f"{where}: enough", fields["enough"])
    if "at_least" in fields:
        at_least = _parse_share(f"{where}: at_least", fields["at_least"])
    if "within_s" in fields:
        within_s = _parse_seconds(f"{where}: within_s", fields["within_s"])
    if "must" in fields:
        must = tuple(map(StepId, get_texts(f"{where}: must", fields["must"])))
    return JoinSyntax(where, enough_share, at_least, within_s, must)


def _parse_seconds(where: str, node: yaml.Node) -> int:
    """Return a duration in seconds. Raises: UserError: the text is not a duration."""
    try:
        return parse_whole_seconds(get_text(where, node))
    except InvalidDuration as error:
        raise UserError(f"{where}: {error}") from error


def _parse_share(where: str, node: yaml.Node) -> Share:
    """Return a number of results.

    Raises:
        UserError: the text is neither a number nor a percentage.
    """
    text = get_text(where, node)
    percent = _PERCENT.fullmatch(text)
    if percent:
        return Share(int(percent[1]), is_percent=True)
    if _COUNT.fullmatch(text):
        return Share(int(text))
    raise UserError(
        f"{where} must be a number of results, such as 3, or a percentage, such as 80%, not"
        f" {text!r:.40}"
    )
