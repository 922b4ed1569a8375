"""A case of a golden set has everything that the answer of its job depends on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.documents.extraction import extract
from handoff_queue.shared.documents.media_types import get_media_type
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.evaluation.golden_set import NewCase, build_case
from tests.supervisor.shell import Shell, running_shell

PAGE = "<h1>Tags</h1><p>Use the &lt;b&gt; tag for bold text.</p>"


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


def case_of(shell: Shell, request: Request) -> tuple[NewCase, list[str]]:
    """Return the case of a job, and the texts that its agents read, sorted."""
    job_id = shell.jobs.submit(request)
    shell.advance(job_id)
    while shell.open(job_id):
        for event in shell.open(job_id):
            shell.do(job_id, event)
        shell.advance(job_id)
    export = shell.jobs.export(job_id, texts=True)
    return build_case(export, "a"), sorted((export.texts or {}).values())


@pytest.mark.parametrize(
    ("files", "written"),
    [
        ({"tags.html": PAGE}, ["tags.html.txt"]),
        ({"tags.html": PAGE, "tags.html.txt": "1"}, ["tags.html.txt", "tags.html.txt.txt"]),
        ({"data.json": "[1]", "data.json.txt": "2"}, ["data.json", "data.json.txt"]),
    ],
)
def test_the_agent_of_a_case_reads_the_documents_of_its_job(
    shell: Shell, tmp_path: Path, files: dict[str, str], written: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    case, texts = case_of(shell, Request("Which tag is bold?", documents=tmp_path))

    assert sorted(case.documents) == written
    read_texts: list[str] = []
    for name, text in case.documents.items():
        read_texts.append(extract(text.encode(), get_media_type(name)))
    assert sorted(read_texts) == texts


def test_a_job_with_an_answer_schema_is_not_a_case(shell: Shell) -> None:
    request = Request("How strong is it?", answer_schema={"type": "object"})
    with pytest.raises(UserError, match="has an answer schema, and a case has none"):
        case_of(shell, request)
