"""A document that comes with a request is written nowhere but into its temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from handoff_queue.shared.types.errors import InvalidDocuments, UserError
from handoff_queue.supervisor.client import submission
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request

NAMES = {
    "up": "../owned.md",
    "far up": "../../../../../../../../FOLDER/owned.md",
    "absolute": "/FOLDER/owned.md",
    "absolute with two slashes": "//FOLDER/owned.md",
    "up from a folder": "a/../../owned.md",
    "this folder": "./owned.md",
    "a hidden file": ".ssh/owned.md",
    "a NUL": "a\0owned.md",
    "a line break": "a\nowned.md",
    "a terminal escape": "a\x1b[2Jowned.md",
    "another direction": "a\u202eowned.md",
    "invisible text": "a\U000e0041owned.md",
    "half a character": "a\ud83downed.md",
    "Windows": "..\\owned.md",
    "a drive": "C:\\owned.md",
    "nothing": "",
    "a point": ".",
    "two points": "..",
    "a slash": "/",
    "an empty part": "a//owned.md",
    "5,000 characters": "a" * 5_000 + "owned.md",
}


def name_in(folder: Path, kind: str) -> str:
    """Return the name, of which an absolute path leads into a folder."""
    return NAMES[kind].replace("FOLDER", str(folder).removeprefix("/"))


@pytest.mark.parametrize("kind", NAMES)
def test_the_python_client_refuses_the_name_before_it_writes_a_file(
    tmp_path: Path, jobs: Client, kind: str
) -> None:
    request = Request("Read it.", documents={name_in(tmp_path, kind): b"owned"})

    for use in (jobs.read_documents, jobs.submit):
        with pytest.raises(UserError, match="no document can be called"):
            use(request)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", sorted({*NAMES} - {"half a character"}))
def test_the_http_api_refuses_the_name(tmp_path: Path, http: TestClient, kind: str) -> None:
    documents = {name_in(tmp_path, kind): "owned"}

    response = http.post("/v1/jobs", json={"text": "Read it.", "documents": documents})

    assert response.status_code in (400, 422)
    assert not [*tmp_path.iterdir()]


MANY = {
    "files": {f"{number}.md": b"text" for number in range(10_001)},
    "folders": {f"{number}/{'a/' * 400}b.md": b"text" for number in range(6)},
}


@pytest.mark.parametrize("kind", MANY)
def test_many_documents_are_refused_before_one_is_written(
    jobs: Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "TemporaryDirectory", None)  # it would raise a TypeError

    with pytest.raises(InvalidDocuments, match=rf"more than [0-9,]+ {kind}"):
        jobs.read_documents(Request("Read it.", documents=MANY[kind]))


@pytest.mark.slow
def test_documents_in_one_deep_folder_are_read(jobs: Client) -> None:
    documents = {f"{'a/' * 400}{number}.md": b"text" for number in range(5)}

    assert len(jobs.read_documents(Request("Read it.", documents=documents)).texts) == 1
