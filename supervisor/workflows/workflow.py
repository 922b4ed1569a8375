"""A workflow: the steps that a person wrote, and how they become the plan of a job."""

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
from handoff_queue.shared.text.word_forms import suggestion
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
from handoff_queue.supervisor.text.markdown import title_of
from handoff_queue.supervisor.text.plain_yaml import fields_of, text_of, texts_of
from handoff_queue.supervisor.text.repeated_step_names import copy_name
from handoff_queue.supervisor.workflows.template import ITEM, OWN_NAMES, REQUEST, Template

FIELDS = ("enough", "at_least", "within_s", "must")
"""Fields of a join."""
_PERCENT = re.compile(r"(100|[1-9][0-9]?) ?%")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


MOST_STEPS = 100_000
"""Most steps of one plan, including copies."""
MOST_DEPENDENCIES = 200_000
"""Most dependencies of one plan: enough for two fan-ins over all its steps. A plan with more
has copies that each wait for all copies of another step.
"""
MOST_PLAN_CHARS = 32_000_000
"""Most characters of the tasks, fallbacks, titles and conditions of one plan, which is one
payload. It is the limit of `shared.runtime.payload_cache`.
"""
MOST_NAME_CHARS = 1_000
"""Most characters of a path or line that is the key of its item. If one path
or line is longer, the key of each item is its number.
"""
MOST_KEY_CHARS = 40
"""Most characters of the values of a column that can name its rows, if the workflow has no
`key`.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """A number or a percentage of results."""

    number: int
    is_percent: bool = False

    def of(self, parts: int) -> int:
        """Return the number of results. `parts`: the possible results.

        A percentage is rounded up, and is at least one result.
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

    def of(self, copies: Mapping[StepId, tuple[StepId, ...]]) -> Join:
        """Return the join of one job.

        Args:
            copies: copies of every dependency.

        Raises:
            UserError: the join needs more results than there are, or a step that is no dependency.
        """
        parts = tuple(chain.from_iterable(copies.values()))
        enough = None
        if self.enough:
            enough = self.enough.of(len(parts))
        must: list[StepId] = []
        for step in self.must:
            must += copies.get(step, (step,))
        try:
            join = Join(
                enough=enough,
                at_least=self.at_least.of(len(parts)),
                within_s=self.within_s,
                must=tuple(must),
            )
        except ValidationError as error:
            raise UserError(f"{self.where}: {problems_of(error)}; correct it") from error
        if problems := join_problems(join, parts):
            raise UserError(f"{self.where}: it {'; it '.join(problems)}")
        return join


def join_as_json(join: JsonValue, parts: int) -> JsonValue:
    """Return a join in the form that `Join` takes: percentages (`80%`) become numbers, and a
    single name in `must` becomes a list. All other values stay as they are.

    Args:
        parts: number of possible results.
    """
    if not isinstance(join, dict):
        return join
    changed = dict(join)
    for name in ("enough", "at_least"):
        text = join.get(name)
        if isinstance(text, str) and (percent := _PERCENT.fullmatch(text.strip())):
            changed[name] = Share(int(percent[1]), is_percent=True).of(parts)
    must = join.get("must")
    if isinstance(must, str):
        changed["must"] = [must]
    return changed


def join_from(where: str, node: yaml.Node) -> JoinSyntax:
    """Parse a join. `where`: file, line and step, for errors.

    Raises:
        UserError: the first fault, and its correction.
    """
    fields = fields_of(where, node)
    for name in fields:
        if name not in FIELDS:
            advice = suggestion(name, FIELDS)
            raise UserError(f"{where}: there is no field {name!r:.80}; {advice}")
    if not fields:
        raise UserError(
            f"{where}: is empty; write `enough: 3`, `within_s: 60` or the like, or leave it out"
        )
    enough, at_least, within_s = None, Share(1), None
    must: tuple[StepId, ...] = ()
    if "enough" in fields:
        enough = _share(f"{where}: enough", fields["enough"])
    if "at_least" in fields:
        at_least = _share(f"{where}: at_least", fields["at_least"])
    if "within_s" in fields:
        within_s = _seconds(f"{where}: within_s", fields["within_s"])
    if "must" in fields:
        must = tuple(map(StepId, texts_of(f"{where}: must", fields["must"])))
    return JoinSyntax(where, enough, at_least, within_s, must)


def _seconds(where: str, node: yaml.Node) -> int:
    """Return a duration in seconds. Raises: UserError: the text is not a duration."""
    try:
        return whole_seconds_of(text_of(where, node))
    except InvalidDuration as error:
        raise UserError(f"{where}: {error}") from error


def _share(where: str, node: yaml.Node) -> Share:
    """Return a number of results. Raises: UserError: the text is no number and no percentage."""
    text = text_of(where, node)
    if percent := _PERCENT.fullmatch(text):
        return Share(int(percent[1]), is_percent=True)
    if _COUNT.fullmatch(text):
        return Share(int(text))
    raise UserError(f"{where} must be a number of results, such as 3, or a percentage, such as 80%")


class ForEach(StrEnum):
    """The kind of the items that a step is repeated over."""

    FILES = "files"
    LINES = "lines"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step as it was written. It becomes one Step of the plan, or a copy for each item."""

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
    """The condition on which the step begins."""
    after: Literal["review"] | None = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: bool | None = None
    """True if a person must approve before the step begins."""
    title: Template | None = None
    """The heading of the result in a merged answer."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """The texts of the step that may hold placeholders."""
        if self.title:
            return (self.task, self.fallback, self.title)
        return (self.task, self.fallback)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all placeholders, each once."""
        names: dict[str, None] = {}
        for template in self.templates:
            names.update(dict.fromkeys(template.names))
        return tuple(names)


def steps_by_id(steps: Sequence[WorkflowStep]) -> dict[StepId, WorkflowStep]:
    """Return the steps by their ids. If steps have the same id, the last one counts."""
    return {step.id: step for step in steps}


_Values: TypeAlias = Mapping[ForEach | None, Sequence[Mapping[str, str]]]
"""Values of the placeholders of each copy. None: a step without copies."""


class _Key(NamedTuple):
    """The names of an item."""

    heading: str
    """The text of the item in a title."""
    name: str
    """The key of the item in the results: the same text, or the item's number."""


_Keys: TypeAlias = Mapping[ForEach, Sequence[_Key]]
"""The names of the items of each kind."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow that `supervisor.workflows.read_workflow` has parsed and checked."""

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
    """Gates of the answers of its jobs, for requests without gates."""

    @property
    def repeats_over(self) -> frozenset[ForEach]:
        """The kinds of items that a job must provide."""
        return frozenset(step.for_each for step in self.steps if step.for_each)

    @property
    def specialists(self) -> tuple[str, ...]:
        """The names of its specialists, sorted."""
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
                rows. `UserError` also means that a placeholder has no column, the key column is
                not valid, or a join is not possible. `UserError` also means that the plan or one
                of its texts is too large.
        """
        counts = {
            ForEach.FILES: len(files),
            ForEach.LINES: len(lines),
            ForEach.ROWS: len(rows),
        }
        self._check_given(counts)
        self._check_size(counts)
        by_id = steps_by_id(self.steps)
        keys = self._keys(files, lines, rows)
        values = _placeholder_values(request, files, lines, rows)
        steps: list[Step] = []
        chars = 0
        for written in self.steps:
            for step in self._copies(written, by_id, values, keys):
                chars += len(step.task) + len(step.fallback) + len(step.title or "")
                if step.when:
                    chars += len(step.when.to_json())
                if chars > MOST_PLAN_CHARS:
                    problem = f"the plan has more than {MOST_PLAN_CHARS:,} characters"
                    raise UserError(
                        f"{written.where}: {problem}; give fewer items, or shorter ones"
                    )
                steps.append(step)
        join = None
        if self.join:
            join = self.join.of(self._copies_of_sinks(values))
        return Plan(
            steps=tuple(steps),
            synthesis=self.synthesis,
            join=join,
            why=f"Workflow {self.name}: {self.description}",
        )

    def _copies_of_sinks(self, values: _Values) -> dict[StepId, tuple[StepId, ...]]:
        """Return the ids of the copies of each step that no other step depends on."""
        depended_on: set[StepId] = set()
        for step in self.steps:
            depended_on.update(step.depends_on)
        copies: dict[StepId, tuple[StepId, ...]] = {}
        for step in self.steps:
            if step.id not in depended_on:
                copies[step.id] = _ids_of(step, values)
        return copies

    def _copies(
        self,
        written: WorkflowStep,
        by_id: Mapping[StepId, WorkflowStep],
        values: _Values,
        keys: _Keys,
    ) -> Iterator[Step]:
        """Yield one step, or a copy for each item. A copy depends on the copy of the same
        item, if there is one, or else on all copies.
        """
        own_ids = _ids_of(written, values)
        paired: dict[StepId, tuple[StepId, ...]] = {}
        unpaired: dict[StepId, tuple[StepId, ...]] = {}
        for dependency in written.depends_on:
            if _is_paired(written, by_id[dependency]):
                paired[dependency] = _ids_of(by_id[dependency], values)
            else:
                unpaired[dependency] = _ids_of(by_id[dependency], values)
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
            of_item: dict[StepId, tuple[StepId, ...]] = {}
            for dependency, ids in paired.items():
                of_item[dependency] = (ids[place],)
            try:
                task, fallback = written.task.fill(known), written.fallback.fill(known)
                title = _title(written, own_id, known, key)
                when = _when(written, known, of_item | unpaired)
                join = None
                if written.join:
                    join = written.join.of(unpaired | of_item)
                yield Step(
                    id=own_id,
                    specialist=written.specialist,
                    task=task,
                    depends_on=tuple(chain(*of_item.values(), *unpaired.values())),
                    fallback=fallback,
                    on_failure=written.on_failure,
                    title=title,
                    when=when,
                    after=written.after,
                    approve=written.approve,
                    row=_item_ref(written, place, keys),
                    join=join,
                )
            except KeyError as error:
                column = error.args[0]
                otherwise = "correct the placeholder, or write {{ for a brace"
                advice = suggestion(column, _columns_in(known), otherwise=otherwise)
                raise UserError(f"{where}: there is no column {column!r:.80}; {advice}") from error
            except ValidationError as error:
                raise UserError(
                    f"{where}: {problems_of(error)}; fix the step, the request or the item"
                ) from error

    def _keys(
        self, files: Sequence[str], lines: Sequence[str], rows: Sequence[Mapping[str, str]]
    ) -> _Keys:
        """Return the names of the items of each kind. Raises as `_keys_of_rows`."""
        if self.key and rows:
            of_rows = self._keys_of_rows(self.key, rows)
        else:
            of_rows = row_keys(rows)
        return {
            ForEach.FILES: _keys_in(files),
            ForEach.LINES: _keys_in(lines),
            ForEach.ROWS: _keys_in(of_rows),
        }

    def _keys_of_rows(self, column: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
        """Return the value of each row in the key column.

        Raises:
            UserError: there is no such column, or a value is empty or there twice.
        """
        if column not in rows[0]:
            advice = suggestion(column, rows[0])
            raise UserError(f"{self.path}: key: there is no column {column!r:.80}; {advice}")
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

    def _check_given(self, counts: Mapping[ForEach, int]) -> None:
        """Check that the given items and the repeated steps fit. `counts`: items of each kind.

        Raises:
            UserError: a step is repeated over missing items, or no step uses the given lines or
                rows.
        """
        given = {each for each, count in counts.items() if count}
        for step in self.steps:
            if step.for_each and step.for_each not in given:
                others, how = "", "give items (--items)"
                if step.for_each is ForEach.FILES:
                    how = "give documents (--docs)"
                if given:
                    others = f" (it has {' and '.join(sorted(given))})"
                raise UserError(
                    f"{step.where}: repeats over {step.for_each}, and the job has none{others};"
                    f" {how}"
                )
        for each in sorted(given - self.repeats_over - {ForEach.FILES}):
            raise UserError(
                f"{self.path}: the job has {each}, and no step repeats over them; write"
                f" `for_each: {each}`, or leave them out"
            )

    def _check_size(self, counts: Mapping[ForEach, int]) -> None:
        """Check the size of the plan before it is made. `counts`: items of each kind.

        Raises:
            UserError: the plan has too many steps or dependencies.
        """
        copies: dict[StepId, int] = {}
        for step in self.steps:
            copies[step.id] = counts[step.for_each] if step.for_each else 1
        by_id = steps_by_id(self.steps)
        steps = dependencies = 0
        for step in self.steps:
            for dependency in step.depends_on:
                if _is_paired(step, by_id[dependency]):
                    dependencies += copies[step.id]
                else:
                    dependencies += copies[step.id] * copies[dependency]
            if dependencies > MOST_DEPENDENCIES:
                raise UserError(
                    f"{step.where}: more than {MOST_DEPENDENCIES:,} dependencies, each copy of one"
                    " step waits for each copy of another; repeat both over the same items, or put"
                    " a step without `for_each` between them"
                )
            steps += copies[step.id]
            if steps > MOST_STEPS:
                raise UserError(
                    f"{step.where}: the plan has more than {MOST_STEPS:,} steps; split the items"
                    " over several jobs"
                )


def _placeholder_values(
    request: str,
    files: Sequence[str],
    lines: Sequence[str],
    rows: Sequence[Mapping[str, str]],
) -> _Values:
    of_rows: list[Mapping[str, str]] = []
    for row in rows:
        of_rows.append({**row, REQUEST: request, ITEM: row_text(row)})
    return {
        None: [{REQUEST: request}],
        ForEach.FILES: [{REQUEST: request, ITEM: path} for path in files],
        ForEach.LINES: [{REQUEST: request, ITEM: line} for line in lines],
        ForEach.ROWS: of_rows,
    }


def _columns_in(values: Mapping[str, str]) -> list[str]:
    """Return the names of the columns among the values of placeholders."""
    return [name for name in values if name not in OWN_NAMES]


def _when(
    step: WorkflowStep,
    known: Mapping[str, str],
    dependencies: Mapping[StepId, Sequence[StepId]],
) -> When | None:
    """Return the condition of a copy, with the ids of the steps that it names.

    Args:
        known: values of the placeholders of the copy.
        dependencies: for each dependency, the copies that this copy waits for.

    Raises:
        UserError: there is no such column.
    """
    condition = step.when
    if condition is None:
        return None
    columns = _columns_in(known)
    for column in condition.columns:
        if column not in columns:
            advice = suggestion(column, columns)
            raise UserError(f"{step.where}: when: there is no column {column!r:.80}; {advice}")
    ids: dict[str, StepId] = {}
    for name in condition.steps:
        ids[name] = dependencies[StepId(name)][0]
    item: str | dict[str, str] | None = None
    if condition.has_item:
        if step.for_each is ForEach.ROWS:
            item = {column: known[column] for column in condition.columns}
        else:
            item = known[ITEM]
    return When(text=condition.text, steps=ids, item=item)


def _item_ref(step: WorkflowStep, place: int, keys: _Keys) -> ItemRef | None:
    """Return the item of a copy, or None for a step without copies."""
    if step.for_each is None:
        return None
    name = keys[step.for_each][place].name
    return ItemRef(step=step.id, each=step.for_each.value, n=place + 1, key=name)


def _keys_in(texts: Sequence[str]) -> list[_Key]:
    """Return the names of items. If a text is there twice, empty or too long, numbers are keys."""
    are_keys = len(set(texts)) == len(texts) and _are_short(texts, MOST_NAME_CHARS)
    keys: list[_Key] = []
    for n, text in enumerate(texts, start=1):
        keys.append(_Key(text, text if are_keys else str(n)))
    return keys


def _are_short(texts: Sequence[str], most: int) -> bool:
    """Return whether each text has 1 to `most` characters."""
    return all(0 < len(text) <= most for text in texts)


def _ids_of(step: WorkflowStep, values: _Values) -> tuple[StepId, ...]:
    """Return the ids of the copies of a step, or the id of a step without copies."""
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


def _is_paired(step: WorkflowStep, other: WorkflowStep) -> bool:
    """Return whether both steps are repeated over the same items.

    A copy then depends only on the copy of the same item.
    """
    return step.for_each is not None and step.for_each is other.for_each


def row_keys(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a key for each row: the first column with short values that are all different.

    Without such a column, the key of a row is its first value that is not blank.
    """
    for column in rows[0] if rows else ():
        values = [row.get(column, "").strip() for row in rows]
        if _are_short(values, MOST_KEY_CHARS) and len(set(values)) == len(values):
            return values
    return list(map(_first_value, rows))


def _first_value(row: Mapping[str, str]) -> str:
    """Return the first value that is not blank, or ''."""
    for value in row.values():
        if value.strip():
            return value
    return ""


def row_text(row: Mapping[str, str]) -> str:
    """Return a row as a model reads it: one line `column: value` for each column."""
    return "\n".join(f"{column}: {value}" for column, value in row.items())
