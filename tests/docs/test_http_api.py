"""docs/how-to/http-api.md is complete. `tests/e2e/test_docs_pages.py` types its commands."""

from __future__ import annotations

from handoff_queue.supervisor.serve.openapi_document import PROBLEMS
from tests.docs.pages import sections, text_of

PAGE = text_of("how-to/http-api")


def test_the_page_lists_every_status_of_an_error() -> None:
    rows = [
        line.split("|")[1].strip() for line in sections(PAGE)["Errors"].splitlines() if "|" in line
    ]

    assert set(rows[2:]) == {str(status) for status in PROBLEMS}
