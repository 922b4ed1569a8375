"""Payloads live once, by content; documents for all jobs together; all of it for a limited time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config import Settings
from shared.ledger import keys
from shared.ledger.blobs import COMPRESS_FROM, packed, unpacked
from shared.ledger.journal import Commit
from shared.ledger.ledger import Ledger
from shared.wire.documents import Document
from shared.wire.errors import LedgerError
from shared.wire.events import CancelRequested
from shared.wire.handoff import ref
from shared.wire.ids import JobId
from shared.wire.message import digest_of
from tests.doubles.jobs import a_job

WORK_S = 600
"""What a job may take."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def store(ledger: Ledger, job_id: JobId, texts: list[str]) -> None:
    """As a decision that refers to them does."""
    version = ledger.journal.read(job_id)[-1].version
    ledger.journal.commit(
        Commit(job_id=job_id, expected=version, events=[CancelRequested()], payloads=texts)
    )


@given(TEXTS | TEXTS.map(lambda text: text * 200))
def test_every_text_comes_back_as_it_was(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_long_texts_are_stored_small(ledger: Ledger) -> None:
    job_id, text = a_job(ledger), "The same again. " * 10_000
    store(ledger, job_id, [text])

    assert ledger.connection.redis.hstrlen(keys.blobs(job_id), digest_of(text)) < len(text) / 20
    assert len(packed("x" * (COMPRESS_FROM - 1))) == COMPRESS_FROM


def test_payloads_come_back_by_digest_in_one_go(ledger: Ledger) -> None:
    job_id, texts = a_job(ledger), ["one", "two", "drei: ü"]
    store(ledger, job_id, texts)

    assert ledger.blobs.get(job_id, [digest_of(text) for text in texts]) == {
        digest_of(text): text for text in texts
    }
    assert ledger.blobs.get(job_id, []) == {}


def test_a_payload_that_is_gone_is_named(ledger: Ledger) -> None:
    job_id = a_job(ledger)
    store(ledger, job_id, ["one"])

    with pytest.raises(LedgerError, match=digest_of("two")[:12]):
        ledger.blobs.get(job_id, [digest_of("one"), digest_of("two")])


def test_a_reference_tells_the_size(ledger: Ledger) -> None:
    assert (ref("drei: ü").digest, ref("drei: ü").size) == (digest_of("drei: ü"), 7)


def test_documents_are_asked_for_before_they_are_sent(ledger: Ledger) -> None:
    ledger.blobs.put_documents({digest_of("one"): "one"}, WORK_S)

    assert ledger.blobs.missing_documents([digest_of("one"), digest_of("two")], WORK_S) == {
        digest_of("two")
    }
    assert ledger.blobs.documents([digest_of("one"), digest_of("two")]) == {digest_of("one"): "one"}


def test_a_document_that_is_used_again_stays_for_another_while(ledger: Ledger) -> None:
    ledger.blobs.put_documents({digest_of("one"): "one"}, WORK_S)
    ledger.connection.redis.expire(keys.document(digest_of("one")), 5)
    ledger.blobs.missing_documents([digest_of("one")], WORK_S)

    assert ledger.connection.redis.ttl(keys.document(digest_of("one"))) > 1_000


def test_a_document_stays_while_its_job_may_be_at_work_and_then_for_its_retention(
    ledger: Ledger,
) -> None:
    ledger.blobs.put_documents({digest_of("one"): "one"}, WORK_S)

    assert (
        Settings().retention_s + WORK_S - 5
        < ledger.connection.redis.ttl(keys.document(digest_of("one")))
        <= Settings().retention_s + WORK_S
    )


def test_a_short_job_does_not_take_a_document_from_a_long_one(ledger: Ledger) -> None:
    digest = digest_of("one")
    ledger.blobs.put_documents({digest: "one"}, 100 * WORK_S)
    ledger.blobs.missing_documents([digest], WORK_S)
    ledger.blobs.put_documents({digest: "one"}, WORK_S)

    assert ledger.connection.redis.ttl(keys.document(digest)) > Settings().retention_s + 99 * WORK_S


def test_thousands_of_documents_are_asked_for_in_parts(ledger: Ledger) -> None:
    digests = [digest_of(str(n)) for n in range(2_500)]

    assert ledger.blobs.missing_documents(digests, WORK_S) == set(digests)


def test_a_fetched_page_belongs_to_its_job(ledger: Ledger) -> None:
    job_id, other = a_job(ledger), a_job(ledger)
    page = Document(
        path="https://example.org/a", digest=digest_of("text"), media_type="text/html", chars=4
    )
    ledger.blobs.put_fetched(job_id, page, "text", WORK_S)

    assert ledger.blobs.fetched(job_id) == [page]
    assert ledger.blobs.fetched(other) == []
    assert ledger.blobs.documents([page.digest]) == {page.digest: "text"}
