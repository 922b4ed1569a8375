"""A golden set: requests with the criteria that measure their answers. The file has one JSON
object in each line. A new case comes from an ended job: its request, its documents and its answer
as the reference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from handoff_queue.shared.documents.media_types import get_media_type, is_html, is_text
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.events import JobEnded, JobSubmitted
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.shared.types.ids import NameField
from handoff_queue.shared.types.json_values import refuse_repeats
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_result import build_report
from handoff_queue.supervisor.evaluation.answer_faults import format_answer
from handoff_queue.supervisor.lifecycle.answer import format_open_points
from handoff_queue.supervisor.lifecycle.gaps import format_gaps_section
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN
from handoff_queue.supervisor.text.plain_yaml import read_bounded

MAX_BYTES = 5_000_000
MAX_CASES = 1_000
MAX_REFERENCE_CHARS = 10_000
_NO_OBJECT = ("json_invalid", "model_type")
"""Pydantic's types of the problem that a line is not a JSON object."""
_SAMPLE = '{"id": "a", "request": "...", "gates": {"min_words": 50}}'
"""A valid line."""


class GoldenCase(BaseModel):
    """A request of a golden set."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: NameField
    request: Annotated[str, StringConstraints(min_length=1, max_length=50_000)]
    docs: str | None = None
    """A folder or a file, relative to the folder of the golden set, and within this folder."""
    kind: Annotated[str, StringConstraints(min_length=1, max_length=40)] | None = None
    """Kind of the request. The report has a rate for each kind."""
    gates: Gates | None = None
    """Gates for the answer. They are checked after the end of the job, which does not know them."""
    rubric: Rubric | None = None
    """Criteria of the grader. None: no grader scores the answer."""
    reference: (
        Annotated[str, StringConstraints(min_length=1, max_length=MAX_REFERENCE_CHARS)] | None
    ) = None
    """A right answer. Only the grader sees it."""

    @field_validator("rubric", mode="before")
    @classmethod
    def _parse_rubric(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return Rubric.of_fields(value)
        return value

    @model_validator(mode="after")
    def _validate_measures(self) -> Self:
        if self.gates in (None, Gates()) and self.rubric is None:
            raise ValueError(
                "it has neither gates nor a rubric, so nothing would measure its answer: add for"
                ' example "gates": {"min_words": 50}'
            )
        if self.gates and self.gates.fact_checker:
            raise ValueError(
                "a fact-checker checks an answer while its job runs: leave gates.fact_checker out"
            )
        return self


def read_golden(path: Path) -> tuple[GoldenCase, ...]:
    """Return the cases of a file. Their `docs` become paths relative to the current folder.

    Raises:
        UserError: the file cannot be read, a line is invalid, or there are no cases or too
            many. The message names an invalid line.
    """
    data = read_bounded(path, MAX_BYTES, "split it into several golden sets")
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8"
        ) from error
    cases = list(_iterate_cases(path, lines))
    if not cases:
        raise UserError(f"{path} holds no request: write one JSON object a line, such as {_SAMPLE}")
    if len(cases) > MAX_CASES:
        raise UserError(
            f"{path} holds more than {MAX_CASES:,} requests: split it into several golden sets"
        )
    return tuple(cases)


def _iterate_cases(path: Path, lines: list[str]) -> Iterator[GoldenCase]:
    """Yield the cases in the lines.

    Raises:
        UserError: a line is invalid, or its id is the id of an earlier line.
    """
    known: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            refuse_repeats(line)
            case = GoldenCase.model_validate_json(line)
        except ValidationError as error:
            problem = describe_problems(error, kind=GoldenCase, shows_values=True)
            if error.errors()[0]["type"] in _NO_OBJECT:
                problem += f"; write one JSON object a line, such as {_SAMPLE}"
            raise UserError(f"{path}:{number}: {problem}") from error
        except (MalformedMessage, UserError) as error:
            raise UserError(f"{path}:{number}: {error}") from error
        if case.id in known:
            raise UserError(
                f"{path}:{number}: the id {case.id} is the id of line {known[case.id]}, too: each"
                " request needs its own id"
            )
        known[case.id] = number
        if case.docs is None:
            yield case
            continue
        if not _is_within(path.parent, case.docs):
            raise UserError(
                f"{path}:{number}: docs: {case.docs[:80]!r} is outside of the folder of the golden"
                " set: copy the documents into it"
            )
        yield case.model_copy(update={"docs": str(path.parent / case.docs)})


def _is_within(folder: Path, docs: str) -> bool:
    """Return whether a path stays in the folder of the golden set, also through its links. A set of
    another author could name the user's private files, and send them out with its requests.
    """
    path = Path(os.path.normpath(docs))
    if path.is_absolute() or os.pardir in path.parts or "\0" in docs:
        return False
    try:
        return (folder / docs).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


@dataclass(frozen=True, slots=True)
class NewCase:
    """A case, and the files of its documents."""

    case: GoldenCase
    documents: Mapping[str, str]
    """Path below the folder of the case -> text."""

    def format_line(self) -> str:
        """Return the case as a line of a golden set."""
        values = self.case.model_dump(mode="json", exclude_none=True)
        if self.case.gates is not None:
            values["gates"] = self.case.gates.model_dump(mode="json", exclude_defaults=True)
        if self.case.rubric is not None:
            values["rubric"] = {
                criterion.name: criterion.means for criterion in self.case.rubric.criteria
            }
        return json.dumps(values, ensure_ascii=False)


def build_case(export: Export, name: str) -> NewCase:
    """Return the case of a job. The checks are the gates and the rubric of the job. A job without
    gates must be answered with sources if its answer has sources. A job without any check gets
    the default rubric.

    Args:
        export: the job, with the texts of its documents.
        name: the id of the case.

    Raises:
        UserError: the job has not ended, or has no answer. Or its request is too long for a case.
            Or its answer depends on items, results or a schema that a case does not have.
    """
    result = build_report(extract_record(export))
    answer = _without_own_lines(format_answer(result), export)
    if not result.status.has_ended:
        raise UserError(f"{result.job_id} has not ended yet: wait for its end")
    if not answer:
        raise UserError(f"{result.job_id} has no answer: choose a job with a good answer")
    submitted = export.journal[0].event
    assert isinstance(submitted, JobSubmitted)
    request = _build_request(export, submitted)
    documents = _collect_documents(export, submitted)
    gates = submitted.gates
    if gates is None and result.citations:
        gates = Gates(cited=True)
    if gates is not None:
        gates = gates.model_copy(update={"fact_checker": None})
    rubric = submitted.rubric
    if rubric is None and gates in (None, Gates()):
        gates, rubric = None, DEFAULT_RUBRIC
    fields: dict[str, Any] = {
        "id": name,
        "request": request,
        "docs": name if documents else None,
        "gates": gates,
        "rubric": rubric,
        "reference": answer[:MAX_REFERENCE_CHARS],
    }
    try:
        return NewCase(GoldenCase(**fields), documents)
    except ValidationError as error:
        problem = describe_problems(error, kind=GoldenCase, shows_values=True)
        problem = re.sub("^id:", "id (--id):", problem)
        raise UserError(f"{result.job_id} cannot be a case: {problem}") from None


def _without_own_lines(text: str, export: Export) -> str:
    """Return the text of an answer without the lines that code adds: gaps, open points, notes and
    marks of statements without a source. No other answer has the same lines.
    """
    for recorded in reversed(export.journal):
        if isinstance(recorded.event, JobEnded) and recorded.event.answer is not None:
            answer = Answer.from_json(export.payloads[recorded.event.answer.digest])
            for note in answer.notes:
                text = text.removesuffix(f"_{note}_").rstrip()
            text = text.removesuffix(format_open_points(answer.open_points)).rstrip()
            text = text.removesuffix(format_gaps_section(answer.gaps)).rstrip()
            break
    return text.replace(f" {UNPROVEN}", "").replace(UNPROVEN, "")


def _build_request(export: Export, submitted: JobSubmitted) -> str:
    """Return the request of a job, with the tasks that a fork has changed.

    Raises:
        UserError: the answer depends on items of a workflow, on the results of another job, or on
            an answer schema.
    """
    job_id = export.job.job_id
    if submitted.answer_schema is not None:
        raise UserError(
            f"{job_id} has an answer schema, and a case has none: choose a job whose answer is"
            " Markdown"
        )
    if submitted.after is not None:
        raise UserError(
            f"{job_id} continues {submitted.after.job_id}, and a case has no earlier results:"
            " choose a job without --after"
        )
    request = export.payloads[submitted.request.digest]
    if submitted.workflow is None:
        return request
    plan = Plan.from_json(export.payloads[submitted.workflow.digest])
    if any(step.row is not None and step.row.each != "files" for step in plan.steps):
        raise UserError(
            f"{job_id} repeats a step for items, and a case has no items: choose a job without"
            " --items"
        )
    new_tasks: list[str] = []
    for step in plan.steps:
        if submitted.fork and step.id in (submitted.fork.new_tasks or ()):
            new_tasks.append(step.task)
    if new_tasks and len(plan.steps) == 1:
        return new_tasks[0]
    return "\n\n".join([request, *new_tasks])


def _collect_documents(export: Export, submitted: JobSubmitted) -> dict[str, str]:
    """Return the texts of the documents that the user gave, by path. A file that would be converted
    when it is read again, such as a PDF or a page, gets the suffix `.txt`. So the agent of the case
    reads the same text.
    """
    if submitted.manifest is None:
        return {}
    assert export.texts is not None
    documents: dict[str, str] = {}
    manifest = Manifest.from_json(export.payloads[submitted.manifest.digest])
    given_paths = {document.path for document in manifest.documents}
    for document in manifest.documents:
        path = document.path
        if _is_converted(path):
            path += ".txt"
            while path in given_paths:
                path += ".txt"
        documents[path] = export.texts[document.digest]
    return documents


def _is_converted(path: str) -> bool:
    """Return whether a file with this name is converted to text when it is read."""
    media_type = get_media_type(path)
    return is_html(media_type) or not is_text(media_type)


def check_paths(folder: Path, documents: Mapping[str, str]) -> None:
    """Check that every document is written below a folder.

    Raises:
        UserError: the path of a document leads out of the folder.
    """
    root = folder.resolve()
    for path in documents:
        if not (folder / path).resolve().is_relative_to(root):
            raise UserError(
                f"the document {path[:80]!r} would be outside of {folder}: add a job whose"
                " documents have no `..` in their names"
            )
