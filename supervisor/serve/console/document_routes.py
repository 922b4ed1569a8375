"""The documents of a job, and the page of one: its stored text, with a quote marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote as percent_encoded
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.agent.quote_search import MAX_QUOTE_CHARS
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.ids import Digest, JobId
from handoff_queue.supervisor.serve.console.pages import render
from handoff_queue.supervisor.serve.console.session import Reads, VisibleJob
from handoff_queue.supervisor.serve.problem_documents import Problem

MAX_CHARS = 100_000
"""Most characters of a document on one page."""
BEFORE_QUOTE = 20_000
"""Characters of the page before the quote."""
MAX_LINK_CHARS = 400
"""Most characters of a quote in a link, because proxies limit the length of a URL."""
MAX_PLACE = 10**9
MAX_CHILDREN = 200
"""Most jobs whose fetched pages are listed and searched: a job and its child jobs."""

MAX_ON_THE_JOB_PAGE = 50
"""Most documents on the page of a job. The list of all has its own pages."""
ROWS = 500
"""Documents of one page of the list."""

Place = Annotated[int, Query(ge=0, le=MAX_PLACE)]
QuoteText = Annotated[str, Query(max_length=MAX_QUOTE_CHARS)]

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A part of a document in three pieces. The middle piece is the quote."""

    before: str
    marked: str
    after: str
    begin: int
    """Place of the part in the text, in characters."""
    size: int
    """Characters of the whole text."""

    @property
    def end(self) -> int:
        return self.begin + len(self.before) + len(self.marked) + len(self.after)

    @property
    def earlier(self) -> int | None:
        """Return the place of the part before this part. None: there is none."""
        return max(0, self.begin - MAX_CHARS) if self.begin else None

    @property
    def later(self) -> int | None:
        """Return the place of the part after this part. None: there is none."""
        return self.end if self.end < self.size else None


@dataclass(frozen=True, slots=True)
class DocumentList:
    """A part of the documents of a job."""

    rows: tuple[Document, ...]
    begin: int
    """Place of the first row among all documents."""
    count: int
    """Number of all documents."""

    @property
    def earlier(self) -> int | None:
        """Return the place of the part before this part. None: there is none."""
        return max(0, self.begin - ROWS) if self.begin else None

    @property
    def later(self) -> int | None:
        """Return the place of the part after this part. None: there is none."""
        end = self.begin + len(self.rows)
        return end if end < self.count else None


def list_documents(
    store: Store, job_id: JobId, begin: int, limit: int, *, has_children: bool
) -> DocumentList:
    """Return a part of the documents of a job: those of the request, and then the fetched pages.
    Of two documents with one name, the list has the first, as the page of a document.

    Args:
        has_children: include the pages that child jobs fetched. Each child is a round trip.
    """
    most_jobs = MAX_CHILDREN if has_children else 1
    by_name: dict[str, Document] = {}
    for _, entry in _iterate_documents(store, job_id, most_jobs):
        by_name.setdefault(entry.path, entry)
    documents = tuple(by_name.values())
    return DocumentList(documents[begin : begin + limit], begin, len(documents))


def build_document_link(job_id: str, citation: Mapping[str, Any]) -> str:
    """Return the URL of the document of a citation, at the quote. The digest names the document: a
    worker that was taken over can add another page with the same name to a job.
    """
    query = {
        "digest": citation["digest"],
        "quote": citation["quote"][:MAX_LINK_CHARS],
        "start": citation["start"],
        "end": citation["end"],
    }
    name = percent_encoded(citation["source"], safe="")
    return f"/jobs/{job_id}/documents/{name}?{urlencode(query)}#quote"


@router.get("/jobs/{job_id}/documents")
async def documents(
    request: Request,
    visit: Reads,
    job_id: VisibleJob,
    begin: Annotated[int, Query(alias="from", ge=0, le=MAX_PLACE)] = 0,
) -> Response:
    """List the documents of a job."""
    document_page = await run_in_threadpool(
        list_documents, visit.access.store, job_id, begin, ROWS, has_children=True
    )
    return await run_in_threadpool(
        render, request, "documents.html", visit, job_id=job_id, documents=document_page
    )


@router.get("/jobs/{job_id}/documents/{name:path}")
async def document(
    request: Request,
    visit: Reads,
    job_id: VisibleJob,
    name: str,
    quote: QuoteText = "",
    start: Place = 0,
    end: Place = 0,
    begin: Annotated[int | None, Query(alias="from", ge=0, le=MAX_PLACE)] = None,
    digest: Digest | None = None,
) -> Response:
    """Show a part of a document: from a place, or around a quote."""
    document = await run_in_threadpool(find_document, visit.access.store, job_id, name, digest)
    if document is None:
        raise Problem(404, f"the job {job_id} has no stored document of this name")
    part = find_part(document, quote, start, end, begin)
    url = f"/jobs/{job_id}/documents/{percent_encoded(name, safe='')}"
    if digest:
        url += f"?digest={digest}"
    return render(
        request,
        "document.html",
        visit,
        name=name,
        job_id=job_id,
        quote=quote,
        part=part,
        url=url,
    )


def find_document(store: Store, job_id: JobId, name: str, digest: str | None) -> str | None:
    """Return the stored text of a document, or of a page that the job or a child job fetched.

    None: the job has no such document, or retention has removed the text.

    Args:
        digest: None: the first document of this name.
    """
    for owner, entry in _iterate_documents(store, job_id, MAX_CHILDREN):
        if entry.path != name or (digest and entry.digest != digest):
            continue
        if owner is not None:
            return store.payloads.get(owner, [], results=[entry.digest])[entry.digest] or None
        tenant = store.connection.sealing.get_owner(job_id)
        return store.payloads.read_documents([entry.digest], tenant).get(entry.digest)
    return None


def _iterate_documents(
    store: Store, job_id: JobId, max_jobs: int
) -> Iterator[tuple[JobId | None, Document]]:
    """Yield the documents of a job, and the pages that it and its child jobs fetched. Each page has
    its job; None: the document is not a page.

    Args:
        max_jobs: most jobs whose fetched pages are read, with the job itself.
    """
    submitted = store.journal.read_first_events([job_id]).get(job_id)
    if isinstance(submitted, JobSubmitted) and submitted.manifest:
        digest = submitted.manifest.digest
        for document in Manifest.from_json(store.payloads.get(job_id, [digest])[digest]).documents:
            yield None, document
    family = [job_id]
    for member in family:  # the loop also visits the child jobs that it appends
        for page in store.payloads.load_fetched_pages(member):
            yield member, page
        if len(family) >= max_jobs:
            continue
        for info in store.jobs.read([member]):
            family += info.children[: max_jobs - len(family)]


def find_part(text: str, quote: str, start: int, end: int, begin: int | None) -> DocumentPart:
    """Return the part of a text around a quote.

    Args:
        quote: the beginning of the quote; '' for none.
        start: place of the quote when it was cited. The text may have changed since.
        end: place of the end of the quote.
        begin: place of the part; None for a part around the quote.
    """
    at = _find_place(text, quote, start)
    until = at + max(len(quote), end - start)
    if begin is None:
        begin = max(0, at - BEFORE_QUOTE)
    stop = min(len(text), begin + MAX_CHARS)
    if at < begin or at >= stop:  # there is no quote, or it is in another part
        return DocumentPart(text[begin:stop], "", "", min(begin, len(text)), len(text))
    until = min(until, stop)
    return DocumentPart(text[begin:at], text[at:until], text[until:stop], begin, len(text))


def _find_place(text: str, quote: str, start: int) -> int:
    """Return the place of a quote; -1 if the text does not have it."""
    if not quote:
        return -1
    if text.startswith(quote, start):
        return start
    return text.find(quote)
