"""A payload is stored once, under its digest. All jobs share documents. Every payload expires."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.payloads import COMPRESS_FROM, pack, unpack
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreError, UnreadablePayload
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.handoff import Document, make_ref
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import a_job

JOB_TIME_S = 600
"""Time limit of a job in seconds."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def store_text(store: Store, job_id: JobId, texts: list[str]) -> None:
    """Commit a decision that refers to these texts."""
    version = store.journal.read(job_id)[-1].version
    store.journal.commit(
        Commit(job_id=job_id, expected=version, events=[CancelRequested()], payloads=texts)
    )


@given(TEXTS | TEXTS.map(lambda text: text * 200))
def test_every_text_is_read_back_unchanged(text: str) -> None:
    assert unpack(pack(text)) == text


def test_long_texts_are_stored_small(store: Store) -> None:
    job_id, text = a_job(store), "The same again. " * 10_000
    store_text(store, job_id, [text])

    assert store.connection.redis.hstrlen(keys.blobs(job_id), compute_digest(text)) < len(text) / 20
    assert len(pack("x" * (COMPRESS_FROM - 1))) == COMPRESS_FROM


def test_payloads_are_read_by_digest_in_one_round_trip(store: Store) -> None:
    job_id, texts = a_job(store), ["one", "two", "drei: ü"]
    store_text(store, job_id, texts)

    assert store.payloads.get(job_id, [compute_digest(text) for text in texts]) == {
        compute_digest(text): text for text in texts
    }
    assert store.payloads.get(job_id, []) == {}


def test_a_missing_payload_is_named_once(store: Store) -> None:
    job_id = a_job(store)
    store_text(store, job_id, ["one"])
    gone = compute_digest("two")

    with pytest.raises(StoreError, match=f"are gone: {gone[:12]}$"):
        store.payloads.get(job_id, [compute_digest("one"), gone, gone])


def test_a_missing_or_damaged_result_is_read_as_an_empty_text(store: Store) -> None:
    job_id = a_job(store)
    store_text(store, job_id, ["whole", "damaged"])
    store.connection.redis.hset(keys.blobs(job_id), compute_digest("damaged"), b"=another text")
    results = [compute_digest(text) for text in ("whole", "damaged", "gone")]

    assert list(store.payloads.get(job_id, [], results=results).values()) == ["whole", "", ""]
    with pytest.raises(UnreadablePayload):
        store.payloads.get(job_id, [compute_digest("damaged")], results=results)


def test_a_reference_holds_the_size(store: Store) -> None:
    assert (make_ref("drei: ü").digest, make_ref("drei: ü").size) == (compute_digest("drei: ü"), 7)


def test_missing_documents_are_listed_before_they_are_sent(store: Store) -> None:
    store.payloads.put_documents({compute_digest("one"): "one"}, JOB_TIME_S)

    assert store.payloads.find_missing_documents(
        [compute_digest("one"), compute_digest("two")], JOB_TIME_S
    ) == {compute_digest("two")}
    assert store.payloads.read_documents([compute_digest("one"), compute_digest("two")]) == {
        compute_digest("one"): "one"
    }


def test_a_document_that_is_used_again_stays_for_another_while(store: Store) -> None:
    store.payloads.put_documents({compute_digest("one"): "one"}, JOB_TIME_S)
    store.connection.redis.expire(keys.document(compute_digest("one")), 5)
    store.payloads.find_missing_documents([compute_digest("one")], JOB_TIME_S)

    assert store.connection.redis.ttl(keys.document(compute_digest("one"))) > 1_000


def test_a_document_stays_while_its_job_may_be_at_work_and_then_for_its_retention(
    store: Store,
) -> None:
    store.payloads.put_documents({compute_digest("one"): "one"}, JOB_TIME_S)

    assert (
        Settings().retention_s + JOB_TIME_S - 5
        < store.connection.redis.ttl(keys.document(compute_digest("one")))
        <= Settings().retention_s + JOB_TIME_S
    )


def test_a_short_job_does_not_take_a_document_from_a_long_one(store: Store) -> None:
    digest = compute_digest("one")
    store.payloads.put_documents({digest: "one"}, 100 * JOB_TIME_S)
    store.payloads.find_missing_documents([digest], JOB_TIME_S)
    store.payloads.put_documents({digest: "one"}, JOB_TIME_S)

    assert (
        store.connection.redis.ttl(keys.document(digest)) > Settings().retention_s + 99 * JOB_TIME_S
    )


def test_thousands_of_documents_are_asked_for_in_parts(store: Store) -> None:
    digests = [compute_digest(str(n)) for n in range(2_500)]

    assert store.payloads.find_missing_documents(digests, JOB_TIME_S) == set(digests)


def test_a_fetched_page_belongs_to_its_job(store: Store) -> None:
    job_id, other = a_job(store), a_job(store)
    page = Document(
        path="https://example.org/a", digest=compute_digest("text"), media_type="text/html", chars=4
    )
    store.payloads.put_fetched_page(job_id, page, "text")

    assert store.payloads.load_fetched_pages(job_id) == [page]
    assert store.payloads.load_fetched_pages(other) == []
    assert store.payloads.get(job_id, [page.digest]) == {page.digest: "text"}


def test_each_version_of_a_fetched_page_can_be_cited_and_the_newest_is_found_first(
    store: Store,
) -> None:
    job_id = a_job(store)
    versions = [
        Document(
            path="https://e.com/", digest=compute_digest(text), media_type="text/html", chars=3
        )
        for text in ("old", "new")
    ]
    for page, text in zip((*versions, versions[0]), ("old", "new", "old"), strict=True):
        store.payloads.put_fetched_page(job_id, page, text)

    assert store.payloads.load_fetched_pages(job_id) == versions


def _poison(store: Store, job_id: JobId, digest: str, stored: bytes) -> None:
    store.connection.redis.hset(keys.blobs(job_id), digest, stored)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (pack("another text"), "does not match its digest"),
        (b"z" + zlib.compress(b"x" * 5_000)[:-20], "cut off"),
        (b"z no zlib", "cannot be decoded"),
        (b"=\xff\xfe", "cannot be decoded"),
        (b"", "does not match its digest"),
    ],
    ids=["another text", "cut off", "no zlib", "no UTF-8", "nothing"],
)
def test_a_payload_that_is_not_the_text_of_its_digest_is_never_used(
    store: Store, stored: bytes, why: str
) -> None:
    job_id, digest = a_job(store), compute_digest("the text")
    _poison(store, job_id, digest, stored)

    with pytest.raises(UnreadablePayload, match=f"payload {digest[:12]} cannot be read.*{why}"):
        PayloadCache(store).get_payloads(job_id, [digest])
    assert store.payloads.read_short(job_id, [digest], 1_000) == {}


def test_a_poisoned_payload_of_one_job_does_not_reach_another_job(store: Store) -> None:
    first, second, digest = a_job(store), a_job(store), compute_digest("the text")
    store_text(store, second, ["the text"])
    _poison(store, first, digest, pack("another text"))
    library = PayloadCache(store)

    with pytest.raises(UnreadablePayload):
        library.get_payloads(first, [digest])
    assert library.get_payloads(second, [digest]) == {digest: "the text"}


def test_a_damaged_document_is_reported_to_the_tool_that_reads_it(store: Store) -> None:
    digest = compute_digest("the text")
    store.connection.redis.set(keys.document(digest), pack("another text"), ex=60)

    with pytest.raises(ToolFailed, match="damaged"):
        PayloadCache(store).get_text(a_job(store), digest)


def test_a_compressed_payload_is_unpacked_to_the_limit_and_no_further() -> None:
    bomb = pack("x" * 20_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadablePayload, match="longer than 1,000,000 bytes"):
            unpack(bomb, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 5_000_000


def test_an_unreadable_entry_among_fetched_pages_is_skipped(store: Store) -> None:
    job_id = a_job(store)
    page = Document(
        path="https://example.com/", digest=compute_digest("t"), media_type="text/plain", chars=1
    )
    store.payloads.put_fetched_page(job_id, page, "t")
    store.connection.redis.rpush(keys.fetched_pages(job_id), '{"path": NaN')

    assert store.payloads.load_fetched_pages(job_id) == [page]
