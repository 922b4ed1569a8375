"""A golden case from an ended job: its request, its documents and its answer as the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.shared.types.message import problems_of
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.supervisor.client.export import Export
from handoff_queue.supervisor.client.job_result import report_of
from handoff_queue.supervisor.evaluation.answer_faults import text_of
from handoff_queue.supervisor.evaluation.golden_set import LONGEST_REFERENCE, GoldenCase


@dataclass(frozen=True, slots=True)
class NewCase:
    """A case, and the files of its documents."""

    case: GoldenCase
    documents: Mapping[str, str]
    """Path below the folder of the case -> text."""

    def line(self) -> str:
        """Return the case as a line of a golden set."""
        values = self.case.model_dump(mode="json", exclude_none=True)
        if self.case.gates is not None:
            values["gates"] = self.case.gates.model_dump(mode="json", exclude_defaults=True)
        if self.case.rubric is not None:
            values["rubric"] = _criteria(self.case.rubric)
        return json.dumps(values, ensure_ascii=False)


def _criteria(rubric: Rubric) -> dict[str, str]:
    criteria: dict[str, str] = {}
    for criterion in rubric.criteria:
        criteria[criterion.name] = criterion.means
    return criteria


def case_of(export: Export, name: str) -> NewCase:
    """Return the case of a job. The checks are the gates and the rubric of the job. A job without
    gates must be answered with sources if its answer has sources. A job without any check gets
    the default rubric.

    Args:
        export: the job, with the texts of its documents.
        name: the id of the case.

    Raises:
        UserError: the job has not ended, has no answer, or has a request that is too long for a
            case.
    """
    result = report_of(export.record())
    answer = text_of(result)
    if not result.status.ended:
        raise UserError(f"{result.job_id} has not ended yet: wait for its end")
    if not answer:
        raise UserError(f"{result.job_id} has no answer: choose a job with a good answer")
    submitted = export.journal[0].event
    assert isinstance(submitted, JobSubmitted)
    documents = _documents(export, submitted)
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
        "request": export.payloads[submitted.request.digest],
        "docs": name if documents else None,
        "gates": gates,
        "rubric": rubric,
        "reference": answer[:LONGEST_REFERENCE],
    }
    try:
        return NewCase(GoldenCase(**fields), documents)
    except ValidationError as error:
        problem = problems_of(error, kind=GoldenCase)
        raise UserError(f"{result.job_id} cannot be a case: {problem}") from None


def _documents(export: Export, submitted: JobSubmitted) -> dict[str, str]:
    """Return the texts of the documents that the user gave, by path. A document that was no text
    file gets the suffix `.txt`.
    """
    if submitted.manifest is None:
        return {}
    documents: dict[str, str] = {}
    manifest = Manifest.from_json(export.payloads[submitted.manifest.digest])
    for document in manifest.documents:
        path = PurePosixPath(document.path)
        if not document.media_type.startswith("text/"):
            path = path.with_name(f"{path.name}.txt")
        assert export.texts is not None
        documents[str(path)] = export.texts[document.digest]
    return documents


def check_paths(folder: Path, documents: Mapping[str, str]) -> None:
    """Check that every document is written below a folder.

    Raises:
        UserError: the path of a document leads out of the folder.
    """
    root = folder.resolve()
    for path in documents:
        if not (folder / path).resolve().is_relative_to(root):
            raise UserError(f"the document {path[:80]!r} would be outside of {folder}")
