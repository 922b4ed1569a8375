"""A worker that was taken over adds pages to a job. They neither prove, hide nor open what another
agent reads, and cost it little.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.agent.answer_format import Defect
from handoff_queue.shared.agent.tool import ToolOutput
from handoff_queue.shared.runtime.payload_cache import MAX_OWN_CHARS, JobDocuments, PayloadCache
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import Citation, Document, Manifest
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import DOCUMENT
from handoff_queue.workers.tools.read_document import read_document_tool
from tests.doubles.jobs import a_job
from tests.hostile.redis_with_users import Server

pytestmark = pytest.mark.slow

REPORT, MARGIN = "report.pdf", "The margin is 12 percent."
FORGED = "The margin is 47 percent."
PAGE = "https://prices.example/"
RESULT = "tool:find.1/look#1"


def a_page(path: str, text: str, *own_passages: str) -> Document:
    return Document(
        path=path,
        digest=compute_digest(text),
        media_type="text/plain",
        chars=len(text),
        own_passages=own_passages or None,
    )


def documents_with(server: Server, honest: Store, *pages: tuple[Document, str]) -> JobDocuments:
    """Return the documents of a writer's handoff, after a worker of the analyst has added pages."""
    manifest = Manifest(documents=(a_page(REPORT, MARGIN),))
    with server.store("supervisor") as supervisor, server.store("worker-analyst") as attacker:
        job_id = a_job(supervisor)
        supervisor.payloads.put_documents({compute_digest(MARGIN): MARGIN}, 60)
        for page, text in pages:
            attacker.payloads.put_fetched_page(job_id, page, text)
    cache = PayloadCache(honest)
    return cache.open_job_documents(job_id, HandoffId("write.1"), manifest, None)


def test_a_page_with_the_name_of_a_document_proves_nothing(server: Server) -> None:
    with server.store("worker-writer") as honest:
        sources = documents_with(server, honest, (a_page(REPORT, FORGED), FORGED)).sources

        assert isinstance(sources.build_citation(REPORT, FORGED), Defect)
        assert isinstance(sources.build_citation(REPORT, MARGIN), Citation)


def test_a_page_with_the_text_of_a_document_stays_private(server: Server) -> None:
    with server.store("worker-writer") as honest:
        documents = documents_with(server, honest, (a_page(PAGE, MARGIN), MARGIN))

        run = read_document_tool().run
        assert run is not None
        output = run({"source": PAGE}, documents.tool_context)

        assert isinstance(output, ToolOutput)
        assert output.origins == (DOCUMENT,)


def test_a_false_entry_hides_no_quote_of_a_page(server: Server) -> None:
    entry = a_page(PAGE, MARGIN, MARGIN)
    with server.store("worker-writer") as honest:
        sources = documents_with(server, honest, (entry, MARGIN)).sources
        citation = sources.build_citation(PAGE, MARGIN)

        assert isinstance(citation, Citation)
        assert not sources.repeats_own_words(citation, MARGIN)


def test_false_words_of_a_result_are_few(server: Server) -> None:
    """One quote took 11 seconds and 2.6 GB of the worker of another agent."""
    long = "x" * (MAX_OWN_CHARS * 3 // 4)
    entries = [(a_page(RESULT, MARGIN, f"{number}{long}"), MARGIN) for number in range(5)]
    with server.store("worker-writer") as honest:
        sources = documents_with(server, honest, *entries).sources

        assert sum(map(len, sources.list_own_words(RESULT))) <= MAX_OWN_CHARS
