"""A workflow: steps that a person wrote once, their joins and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import yaml
from pydantic import JsonValue, ValidationError

from handoff_queue.shared.text.durations import InvalidDuration, whole_seconds_of
from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.condition import Condition, When
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import problems_of
from handoff_queue.shared.types.plan import (
    TITLE_CHARS,
    ItemRef,
    Join,
    OnFailure,
    Plan,
    Step,
    Synthesis,
    join_problems,
)
from handoff_queue.supervisor.gates.gates_file import GateSet
from handoff_queue.supervisor.text.copy_names import copy_name
from handoff_queue.supervisor.text.markdown import title_of
from handoff_queue.supervisor.text.plain_yaml import fields_of, text_of, texts_of
from handoff_queue.supervisor.workflows.template import ITEM, OWN_NAMES, REQUEST, Template

FIELDS = ("enough", "at_least", "within_s", "must")
_PERCENT = re.compile(r"(100|[1-9][0-9]?) ?%")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Share:
    """A number, or a percentage."""

    number: int
    is_percent: bool = False

    def of(self, parts: int) -> int:
        """Return the number of parts, at least one."""
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
    """Required steps. A repeated step means all copies."""

    def of(self, copies: Mapping[StepId, tuple[StepId, ...]]) -> Join:
        """Return the join of one job.

        Args:
            copies: copies of every dependency.

        Raises:
            UserError: it needs more results than there are, or a step that is no dependency.
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
        if problems := join_problems(join, parts):
            raise UserError(f"{self.where}: it {'; it '.join(problems)}")
        return join


def join_as_json(join: JsonValue, parts: int) -> JsonValue:
    """Return a join in the form that `Join` takes: percentages (`80%`) become numbers, and a single
    name becomes a list. Other values stay, and `Join` refuses them.

    Args:
        parts: number of possible results.
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
    must: dict[str, JsonValue] = (
        {"must": [single]} if isinstance(single := join.get("must"), str) else {}
    )
    return {**join, **numbers, **must}


def join_from(where: str, node: yaml.Node) -> JoinSyntax:
    """Parse a join.

    Raises:
        UserError: the fault and its correction.
    """
    fields = fields_of(where, node)
    if unknown := [name for name in fields if name not in FIELDS]:
        mend = suggestion(unknown[0], FIELDS)
        raise UserError(f"{where}: there is no field {unknown[0]!r:.80}; {mend}")
    if not fields:
        raise UserError(
            f"{where}: says nothing; write `enough: 3`, `within_s: 60` or the like, or leave it out"
        )
    return JoinSyntax(
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
    raise UserError(f"{where} must be a number of results, such as 3, or a percentage, such as 80%")


MOST_STEPS = 100_000
"""Steps of one plan, including copies."""
MOST_DEPENDENCIES = 200_000
"""Dependencies of one plan: two fan-ins over all of its steps. A plan with more has copies that
each wait for all copies of another step.
"""
MOST_PLAN_CHARS = 32_000_000
"""Characters of the tasks and fallbacks of one plan, which is one payload. It is the limit of
`shared.runtime.payload_cache`.
"""

MOST_NAME_CHARS = 1_000
"""The longest text that names an item in the results. Longer texts are no names."""
MOST_KEY_CHARS = 40
"""The longest value of a column that can name its rows. Longer values are texts."""


class ForEach(StrEnum):
    """Items that a step is repeated over."""

    FILES = "files"
    LINES = "lines"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step as it was written: one Step of the plan, or one for each item."""

    id: StepId
    specialist: str
    task: Template
    fallback: Template
    depends_on: tuple[StepId, ...]
    for_each: ForEach | None
    on_failure: OnFailure
    join: JoinSyntax | None
    where: str
    """File, line and step, for errors."""
    when: Condition | None = None
    """The condition on which it begins."""
    after: Literal["review"] | None = None
    """`review`: it begins when a review has passed the results of the steps before it."""
    approve: bool | None = None
    """True if a person must approve before it begins."""
    title: Template | None = None
    """The heading of the result in a merged answer."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """The texts of the step that may hold placeholders."""
        return (self.task, self.fallback, *((self.title,) if self.title else ()))

    @property
    def names(self) -> tuple[str, ...]:
        """Return every placeholder once."""
        return tuple(dict.fromkeys(name for each in self.templates for name in each.names))


_Values: TypeAlias = Mapping[ForEach | None, Sequence[Mapping[str, str]]]
"""Values of the placeholders of each copy. None: a step without copies."""


class _Key(NamedTuple):
    """Name of an item."""

    heading: str
    """A text by which a reader knows the item, in a title."""
    name: str
    """The item's own name among the rows of the results: the same text, or the item's number."""


_Keys: TypeAlias = Mapping[ForEach, Sequence[_Key]]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A file that `supervisor.workflows.read_workflow` found nothing wrong with."""

    name: str
    path: Path
    description: str
    review: bool
    """True if the assessor reviews the results."""
    synthesis: Synthesis
    join: JoinSyntax | None
    """Results of the last steps that the answer needs."""
    steps: tuple[WorkflowStep, ...]
    key: str | None = None
    """The column whose fields name the rows in the results. None: the rows have numbers."""
    gates: GateSet | None = None
    """Gates of its answers, for jobs that have no gates."""

    @property
    def repeats_over(self) -> frozenset[ForEach]:
        """Return the kinds of items that a job must provide."""
        repeats: set[ForEach] = set()
        for step in self.steps:
            if step.for_each:
                repeats.add(step.for_each)
        return frozenset(repeats)

    @property
    def specialists(self) -> tuple[str, ...]:
        """Return the names of its specialists. `limit_problems` checks that they are served."""
        return tuple(sorted({step.specialist for step in self.steps}))

    def expand(
        self,
        request: str,
        *,
        files: Sequence[str] = (),
        lines: Sequence[str] = (),
        rows: Sequence[Mapping[str, str]] = (),
    ) -> Plan:
        """Return the plan of one job.

        Args:
            files: paths of its documents.
            lines: lines as `read_items` returns them.
            rows: rows as `read_items` returns them; no column has a name in OWN_NAMES.

        Raises:
            UserError: a step is repeated over missing items, or no step uses the given lines or
                rows; a placeholder has no column; the plan or one of its texts is too large.
        """
        given: dict[ForEach, Sequence[object]] = {
            ForEach.FILES: files,
            ForEach.LINES: lines,
            ForEach.ROWS: rows,
        }
        self._check_given({each for each, items in given.items() if items})
        self._check_size({each: len(items) for each, items in given.items()})
        by_id = {step.id: step for step in self.steps}
        keys = self._keys(files, lines, rows)
        values: _Values = {
            None: [{REQUEST: request}],
            ForEach.FILES: [{REQUEST: request, ITEM: path} for path in files],
            ForEach.LINES: [{REQUEST: request, ITEM: line} for line in lines],
            ForEach.ROWS: [{**row, REQUEST: request, ITEM: row_text(row)} for row in rows],
        }
        steps: list[Step] = []
        chars = 0
        for written in self.steps:
            for step in self._copies(written, by_id, values, keys):
                if step.when:
                    chars += len(step.when.to_json())
                else:
                    chars += 0
                chars += len(step.task) + len(step.fallback) + len(step.title or "")
                if chars > MOST_PLAN_CHARS:
                    problem = f"the plan has more than {MOST_PLAN_CHARS:,} characters"
                    raise UserError(
                        f"{written.where}: {problem}; give fewer items, or shorter ones"
                    )
                steps.append(step)
        join = None
        if self.join:
            built_upon = {id_ for step in self.steps for id_ in step.depends_on}
            copies = {
                step.id: _ids_of(step, values) for step in self.steps if step.id not in built_upon
            }
            join = self.join.of(copies)
        return Plan(
            steps=tuple(steps),
            synthesis=self.synthesis,
            join=join,
            why=f"Workflow {self.name}: {self.description}",
        )

    def _copies(
        self,
        written: WorkflowStep,
        by_id: Mapping[StepId, WorkflowStep],
        values: _Values,
        keys: _Keys,
    ) -> Iterator[Step]:
        """Yield one step, or a copy for each item. A copy depends on the copy of the same item, if
        there is one, or else on all copies.
        """
        own_ids = _ids_of(written, values)
        beside = {
            id_: _ids_of(by_id[id_], values)
            for id_ in written.depends_on
            if _is_beside(written, by_id[id_])
        }
        apart = {
            id_: _ids_of(by_id[id_], values)
            for id_ in written.depends_on
            if not _is_beside(written, by_id[id_])
        }
        waits_for_all = tuple(chain.from_iterable(apart.values()))
        for place, (own_id, known) in enumerate(
            zip(own_ids, values[written.for_each], strict=True)
        ):
            if written.for_each:
                where = f"{written.where}, item {place + 1}"
            else:
                where = written.where
            key = ""
            if written.for_each:
                key = keys[written.for_each][place].heading
            try:
                yield Step(
                    id=own_id,
                    specialist=written.specialist,
                    task=written.task.fill(known),
                    depends_on=(*(ids[place] for ids in beside.values()), *waits_for_all),
                    fallback=written.fallback.fill(known),
                    on_failure=written.on_failure,
                    title=_title(written, own_id, known, key),
                    when=_when(written, known, apart, beside, place),
                    after=written.after,
                    approve=written.approve,
                    row=_item_ref(written, place, keys),
                    join=written.join.of(
                        apart | {id_: (ids[place],) for id_, ids in beside.items()}
                    )
                    if written.join
                    else None,
                )
            except KeyError as error:
                column = error.args[0]
                columns: list[str] = []
                for name in known:
                    if name not in OWN_NAMES:
                        columns.append(name)
                otherwise = "correct the placeholder, or write {{ for a brace"
                mend = suggestion(column, columns, otherwise=otherwise)
                raise UserError(f"{where}: there is no column {column!r:.80}; {mend}") from error
            except ValidationError as error:
                raise UserError(
                    f"{where}: {problems_of(error)}; fix the step, the request or the item"
                ) from error

    def _keys(
        self, files: Sequence[str], lines: Sequence[str], rows: Sequence[Mapping[str, str]]
    ) -> _Keys:
        """Return the key of each item. Raises: UserError: the key column does not name each row."""
        if self.key and rows:
            of_rows = self._keys_of_rows(self.key, rows)
        else:
            of_rows = row_keys(rows)
        named = {ForEach.FILES: files, ForEach.LINES: lines, ForEach.ROWS: of_rows}
        return {each: _keys_in(texts) for each, texts in named.items()}

    def _keys_of_rows(self, column: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
        if column not in rows[0]:
            mend = suggestion(column, rows[0])
            raise UserError(f"{self.path}: key: there is no column {column!r:.80}; {mend}")
        places: dict[str, int] = {}
        for n, row in enumerate(rows, start=1):
            key = row[column].strip()
            if not key:
                raise UserError(
                    f"{self.path}: key: row {n} has nothing in column {column!r:.80};"
                    " fill it in, or choose another column"
                )
            if key in places:
                raise UserError(
                    f"{self.path}: key: rows {places[key]} and {n} both have {key!r:.80} in column"
                    f" {column!r:.80}; choose a column with different values"
                )
            places[key] = n
        return list(places)

    def _check_given(self, given: set[ForEach]) -> None:
        for step in self.steps:
            if step.for_each and step.for_each not in given:
                others = ""
                if given:
                    others = f" (there are {' and '.join(sorted(given))})"
                raise UserError(
                    f"{step.where}: is repeated over {step.for_each}, and none are given{others}; give some with the job"
                )
        for each in sorted(given - self.repeats_over - {ForEach.FILES}):
            raise UserError(
                f"{self.path}: {each} are given, and no step is repeated over them; write `for_each: {each}`, or leave them out"
            )

    def _check_size(self, counts: Mapping[ForEach, int]) -> None:
        """Check the size before anything is built."""
        copies = {step.id: counts[step.for_each] if step.for_each else 1 for step in self.steps}
        by_id = {step.id: step for step in self.steps}
        steps = dependencies = 0
        for step in self.steps:
            for id_ in step.depends_on:
                dependencies += copies[step.id] * (
                    1 if _is_beside(step, by_id[id_]) else copies[id_]
                )
            if dependencies > MOST_DEPENDENCIES:
                raise UserError(
                    f"{step.where}: more than {MOST_DEPENDENCIES:,} dependencies, each copy of one step waits for each copy of another; "
                    "repeat both over the same items, or put a step without `for_each` between them"
                )
            steps += copies[step.id]
            if steps > MOST_STEPS:
                raise UserError(
                    f"{step.where}: the plan has more than {MOST_STEPS:,} steps; split the items over several jobs"
                )


def _when(
    step: WorkflowStep,
    known: Mapping[str, str],
    apart: Mapping[StepId, Sequence[StepId]],
    beside: Mapping[StepId, Sequence[StepId]],
    place: int,
) -> When | None:
    """Return the condition of a copy, with the ids of the steps that it names.

    Raises:
        UserError: there is no such column.
    """
    condition = step.when
    if condition is None:
        return None
    if unknown := [name for name in condition.columns if name not in {*known} - OWN_NAMES]:
        mend = suggestion(unknown[0], [name for name in known if name not in OWN_NAMES])
        raise UserError(f"{step.where}: when: there is no column {unknown[0]!r:.80}; {mend}")
    ids = {
        name: beside[StepId(name)][place] if name in beside else apart[StepId(name)][0]
        for name in condition.steps
    }
    item: str | dict[str, str] | None = None
    if condition.has_item:
        fields: dict[str, str] = {}
        for column in condition.columns:
            fields[column] = known[column]
        if step.for_each is ForEach.ROWS:
            item = fields
        else:
            item = known[ITEM]
    return When(text=condition.text, steps=ids, item=item)


def _item_ref(step: WorkflowStep, place: int, keys: _Keys) -> ItemRef | None:
    if step.for_each is None:
        return None
    name = keys[step.for_each][place].name
    return ItemRef(step=step.id, each=step.for_each.value, n=place + 1, key=name)


def _keys_in(texts: Sequence[str]) -> list[_Key]:
    """Return the keys of items. An item's name is its number where the texts are no names."""
    are_names = len(set(texts)) == len(texts) and all(
        0 < len(text) <= MOST_NAME_CHARS for text in texts
    )
    return [_Key(text, text if are_names else str(n)) for n, text in enumerate(texts, start=1)]


def _ids_of(step: WorkflowStep, values: _Values) -> tuple[StepId, ...]:
    if step.for_each is None:
        return (step.id,)
    step_ids: list[StepId] = []
    for number in range(1, len(values[step.for_each]) + 1):
        step_ids.append(StepId(copy_name(step.id, number)))
    return tuple(step_ids)


def _title(
    written: WorkflowStep, step_id: StepId, known: Mapping[str, str], key: str
) -> str | None:
    """Return the title of a copy: the written title, or the key of the item and the step id.

    Raises:
        KeyError: a placeholder of the title has no value.
    """
    if written.title and (title := title_of(written.title.fill(known))):
        return title
    own = f" ({step_id})"
    if written.for_each and key.strip():
        return title_of(key, TITLE_CHARS - len(own)) + own
    return None


def _is_beside(step: WorkflowStep, other: WorkflowStep) -> bool:
    """Return whether both steps are repeated over the same items, so that copies of one item follow
    each other.
    """
    return step.for_each is not None and step.for_each is other.for_each


def row_keys(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a key for each row: the first column with short values that are all different.

    Without such a column, the key of a row is its first value that is not blank.
    """
    for column in rows[0] if rows else ():
        values = [row.get(column, "").strip() for row in rows]
        are_short = all(0 < len(value) <= MOST_KEY_CHARS for value in values)
        if are_short and len(set(values)) == len(values):
            return values
    return [next((value for value in row.values() if value.strip()), "") for row in rows]


def row_text(row: Mapping[str, str]) -> str:
    """Return a row as a model reads it: `column: value`, one a line."""
    return "\n".join(f"{column}: {value}" for column, value in row.items())
