"""The page of a document: the quote, the parts of a long text, the tenant wall and hostile text."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import quote as percent_encoded

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.types.handoff import Document, Manifest, make_ref
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.console.document_routes import (
    MAX_CHARS,
    MAX_ON_THE_JOB_PAGE,
    build_document_link,
    find_part,
)
from tests.doubles.jobs import a_job, issue_to_a_child, submission
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor

HOSTILE = "<script>document.title='taken'</script>"
TEXT = "HNSW is a graph. It needs memory.\nHNSW is a graph."


def a_job_with(jobs: Client, text: str, name: str = "notes/a b.md", tenant: str = "acme") -> JobId:
    documents = {name: text.encode()}
    return jobs.submit(Request("Summarise.", documents=documents, tenant=tenant))


def link(job_id: str, **changes: Any) -> str:
    citation = {"source": "notes/a b.md", "quote": "It needs memory.", "start": 17, "end": 33}
    citation["digest"] = compute_digest(TEXT)
    return build_document_link(job_id, citation | changes)


def marked(text: str) -> str:
    """Return the marked text of a page; '' if there is none."""
    node = LexborHTMLParser(text).css_first("mark")
    return node.text() if node else ""


def test_a_citation_opens_the_document_at_the_quote(jobs: Client, local: Visitor) -> None:
    job_id = a_job_with(jobs, TEXT)

    text = local.get(link(job_id)).text

    assert link(job_id).endswith("#quote")
    assert marked(text) == "It needs memory."
    assert LexborHTMLParser(text).css("pre")[0].text() == TEXT


def test_the_place_of_the_citation_chooses_between_equal_quotes(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job_with(jobs, TEXT)
    quote = "HNSW is a graph."

    second = local.get(link(job_id, quote=quote, start=34, end=50)).text
    moved = local.get(link(job_id, quote=quote, start=3, end=19)).text

    assert "memory.\n<mark" in second
    assert f'<mark id="quote" tabindex="-1">{quote}</mark> It needs' in moved


def test_a_quote_that_the_text_does_not_have_is_named(jobs: Client, local: Visitor) -> None:
    text = local.get(link(a_job_with(jobs, TEXT), quote="It needs no memory.")).text

    assert "does not have the quote" in text
    assert marked(text) == ""
    assert "HNSW is a graph." in text


def test_a_fetched_page_of_the_job_or_of_a_child_job_has_its_text(
    jobs: Client, local: Visitor
) -> None:
    outer = a_job(jobs.store)
    inner = issue_to_a_child(jobs.store, outer, "a.1")
    a_job(jobs.store, "default", (outer, "a.1"))  # type: ignore[arg-type]
    for job_id, name in ((outer, "https://example.com/a?b=c"), (inner, "https://example.com/d")):
        page = Document(
            path=name, digest=compute_digest(TEXT), media_type="text/html", chars=len(TEXT)
        )
        jobs.store.payloads.put_fetched_page(job_id, page, TEXT)

        shown = local.get(link(outer, source=name)).text

        assert marked(shown) == "It needs memory."


def test_a_later_page_of_the_same_name_does_not_take_the_place_of_the_cited_one(
    jobs: Client, local: Visitor
) -> None:
    """A worker that was taken over can add pages with any name."""
    job_id, name = a_job(jobs.store), "tool:find.1/orders#1"
    for text in (TEXT, "It needs memory. Pay to account 4711."):
        page = Document(
            path=name, digest=compute_digest(text), media_type="text/plain", chars=len(text)
        )
        jobs.store.payloads.put_fetched_page(job_id, page, text)

    shown = local.get(link(job_id, source=name)).text
    unknown = local.get(link(job_id, source=name, digest=compute_digest("Another text.")))

    assert marked(shown) == "It needs memory."
    assert "4711" not in shown
    assert unknown.status_code == 404


def test_a_document_of_another_tenant_is_like_a_document_that_does_not_exist(
    jobs: Client, visitor_with: VisitorOf
) -> None:
    job_id, own = a_job_with(jobs, TEXT), a_job_with(jobs, TEXT, "other.md", "globex")
    stranger = visitor_with("operate", "globex")

    foreign_job = stranger.get(link(job_id))
    unknown_job = stranger.get(link("j-000000000000"))
    foreign_document = stranger.get(link(own))

    assert {foreign_job.status_code, unknown_job.status_code} == {404}
    assert foreign_job.text.replace(job_id, "") == unknown_job.text.replace("j-000000000000", "")
    assert foreign_document.status_code == 404
    assert "HNSW" not in foreign_job.text + foreign_document.text


def test_hostile_text_is_text(jobs: Client, local: Visitor) -> None:
    hostile = f"{HOSTILE} A. {HOSTILE}</pre></mark>"
    job_id = a_job_with(jobs, hostile, f"{HOSTILE.replace('/', '')}.md")
    path = f"/jobs/{job_id}/documents/{percent_encoded(HOSTILE.replace('/', ''), safe='')}.md"

    for query in ("", f"?quote={percent_encoded(HOSTILE)}", "?quote=%22%3E%3Cscript%3E"):
        response = local.get(path + query)
        assert response.status_code == 200
        assert "<script>" not in response.text.replace("<script src=", "")
        assert "'self'" in response.headers["content-security-policy"]
    assert marked(local.get(f"{path}?quote={percent_encoded(HOSTILE)}").text) == HOSTILE


@pytest.mark.parametrize("query", ["start=-1", "from=x", "end=99999999999", f"quote={'q' * 2_001}"])
def test_a_wrong_address_is_an_error(query: str, jobs: Client, local: Visitor) -> None:
    job_id = a_job_with(jobs, TEXT)

    assert local.get(f"/jobs/{job_id}/documents/notes%2Fa%20b.md?{query}").status_code == 422


def test_the_parts_of_a_long_document_together_have_all_its_text(
    jobs: Client, local: Visitor
) -> None:
    whole = "".join(f"line {number:07}\n" for number in range(2 * MAX_CHARS // 13 + 5))
    job_id = a_job_with(jobs, whole)
    url, read = f"/jobs/{job_id}/documents/notes%2Fa%20b.md", ""
    following = url
    while following:
        page = LexborHTMLParser(local.get(following).text)
        read += page.css("pre")[0].text()
        later = page.css_first('a[rel="next"]')
        following = unescape(later.attributes["href"] or "") if later else ""

    around = local.get(
        link(
            job_id, quote="line 0012000\n", start=156_000, end=156_013, digest=compute_digest(whole)
        )
    ).text

    assert read == whole
    assert marked(around) == "line 0012000\n"
    assert 'rel="prev"' in around


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the table of documents."""
    table = LexborHTMLParser(text).css("#document-table tbody tr")
    return [[cell.text() for cell in row.css("td")] for row in table]


def test_the_page_of_a_job_lists_its_documents_with_links_to_their_texts(
    jobs: Client, local: Visitor
) -> None:
    documents = {"notes/a b.md": TEXT.encode(), "b?c#d.txt": b"Hello."}
    job_id = jobs.submit(Request("Summarise.", documents=documents))
    page = Document(
        path="https://e.com/?a=b", digest=compute_digest("Hi"), media_type="text/html", chars=2
    )
    jobs.store.payloads.put_fetched_page(job_id, page, "Hi")

    text = local.get(f"/jobs/{job_id}").text

    assert rows(text) == [
        ["b?c#d.txt", "text/plain", "6"],
        ["notes/a b.md", "text/markdown", str(len(TEXT))],
        ["https://e.com/?a=b", "text/html", "2"],
    ]
    links = [link.attributes["href"] for link in LexborHTMLParser(text).css("#document-table a")]
    shown = [local.get(link or "").text for link in links]
    assert [LexborHTMLParser(page_text).css("pre")[0].text() for page_text in shown] == [
        "Hello.",
        TEXT,
        "Hi",
    ]


def test_the_list_of_documents_has_the_pages_that_child_jobs_fetched(
    jobs: Client, local: Visitor
) -> None:
    outer, inner = a_job_with(jobs, TEXT), a_job(jobs.store)
    jobs.store.connection.redis.hset(keys.job(outer), "children", inner)
    page = Document(
        path="https://e.com/d", digest=compute_digest("Hi"), media_type="text/html", chars=2
    )
    jobs.store.payloads.put_fetched_page(inner, page, "Hi")

    job_page = local.get(f"/jobs/{outer}").text
    listed = local.get(f"/jobs/{outer}/documents").text

    assert f'href="/jobs/{outer}/documents"' in job_page
    assert [name for name, *_ in rows(job_page)] == ["notes/a b.md"]
    assert [name for name, *_ in rows(listed)] == ["notes/a b.md", "https://e.com/d"]


def a_job_with_many_documents(jobs: Client, names: list[str]) -> JobId:
    """Store a job whose request has documents of these names."""
    job_id, digest = create_job_id(), compute_digest(TEXT)
    documents = tuple(
        Document(path=name, digest=digest, media_type="text/plain", chars=len(TEXT))
        for name in names
    )
    manifest = Manifest(documents=documents).to_json()
    event = submission("Summarise.", manifest=make_ref(manifest))
    jobs.store.journal.commit(
        Commit(
            job_id=job_id,
            expected=0,
            events=[event],
            payloads=["Summarise.", manifest],
            fields={"status": "running", "tenant": "acme"},
            due_at=jobs.store.connection.now() + 3_600,
            creates=True,
        )
    )
    return job_id


@pytest.mark.slow
def test_ten_thousand_documents_do_not_break_the_pages(jobs: Client, local: Visitor) -> None:
    count = 10_000
    names = [f"folder/{number:05}.txt" for number in range(count)]
    job_id = a_job_with_many_documents(jobs, names)

    job_page = local.get(f"/jobs/{job_id}").text
    listed: list[str] = []
    following: str | None = f"/jobs/{job_id}/documents"
    while following:
        text = local.get(following).text
        assert len(text) < 250_000
        listed += [row[0] for row in rows(text)]
        later = LexborHTMLParser(text).css_first('a[rel="next"]')
        following = unescape(later.attributes["href"] or "") if later else None

    assert len(rows(job_page)) == MAX_ON_THE_JOB_PAGE
    assert f">All {count:,} documents</a>" in job_page
    assert listed == names


@pytest.mark.parametrize("query", ["from=-1", "from=x", "from=99999999999"])
def test_a_wrong_place_in_the_list_is_an_error(query: str, jobs: Client, local: Visitor) -> None:
    assert local.get(f"/jobs/{a_job_with(jobs, TEXT)}/documents?{query}").status_code == 422


def test_the_documents_of_another_tenant_are_like_those_of_an_unknown_job(
    jobs: Client, visitor_with: VisitorOf
) -> None:
    job_id = a_job_with(jobs, TEXT)
    stranger = visitor_with("operate", "globex")

    foreign = stranger.get(f"/jobs/{job_id}/documents")
    unknown = stranger.get("/jobs/j-000000000000/documents")

    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.text.replace(job_id, "") == unknown.text.replace("j-000000000000", "")


def test_hostile_names_in_the_list_are_text(jobs: Client, local: Visitor) -> None:
    name = f"{HOSTILE.replace('/', '')}\"' onclick=x.md"
    job_id = a_job_with(jobs, TEXT, name)

    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/documents"):
        text = local.get(path).text
        assert rows(text)[0][0] == name
        assert "<script>document" not in text
        assert 'onclick=x.md"' not in text


@given(
    text=st.text("ab\n", max_size=60),
    quote=st.text("ab", max_size=4),
    start=st.integers(0, 80),
    length=st.integers(0, 9),
    begin=st.none() | st.integers(0, 80),
)
def test_a_part_is_always_a_part_of_the_text(
    text: str, quote: str, start: int, length: int, begin: int | None
) -> None:
    part = find_part(text, quote, start, start + length, begin)

    assert text[part.begin : part.end] == part.before + part.marked + part.after
    assert part.marked.startswith(quote) or not part.marked
