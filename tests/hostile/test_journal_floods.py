"""A worker that was taken over appends to the journals of all jobs whose ids it knows. It appends
without end, or long entries, or texts that look like events. No job, no client and no list waits
for it, or believes it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import journal, journal_signature_check, keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.fleet_history import MAX_SAMPLE_BYTES
from handoff_queue.shared.store.journal import (
    MAX_EVENT_BYTES,
    MAX_UNSIGNED_VALUES,
    parse_entry,
)
from handoff_queue.shared.store.journal_signature_check import (
    LONG_EVENT,
    MAX_FACTS_OF_HANDOFF,
    MAX_WORKER_VALUES,
)
from handoff_queue.shared.store.payloads import SHORT_BYTES
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.event_signatures import FACT, sign_events
from handoff_queue.shared.types.errors import MalformedMessage, VersionConflict
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    CallInQuestion,
    CancelRequested,
    Event,
    EventRefused,
    HandoffFinished,
    JobEnded,
    JobStatus,
    PlanMade,
    RecordedEvent,
    StepOutline,
    StepsAbandoned,
    parse_event,
)
from handoff_queue.shared.types.handoff import MAX_RESULT_VALUES, Document, HandoffResult, make_ref
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.supervisor.engine.journal_signature_guard import MAX_LETTERS
from tests.doubles.jobs import a_job, finish, granted_claim, issue, result_of
from tests.hostile.signed_system import GENERALIST, SignedSystem, issued_in
from tests.waiting import wait_until

NOT_AN_EVENT = b"x"
A_RESULT = b'1790000000000 {"type":"handoff_finished","handoff_id":"answer.1","status":"ok"}'
A_TIME_ALONE = b"1790000000000"
"""Without the space that ends the time of an entry."""
NOT_UTF_8 = {
    "in a text": b'1790000000000 {"type":"plan_made","x":"\xff","signature":"fact/1/aabb/k.x"}',
    "half a character": b'1790000000000 {"x":"\xed\xa0\x80","signature":"decision/1/3/k.x"}',
    "without JSON": b'1790000000000 \xff,"signature":"fact/1/aabb/k.x"}',
    "in the stamp": b'1790000000000 {"x":1,"signature":"fact/1/\xff/k.x"}',
    "with another entry": b'1790000000000 \xff,"signature":"fact/2/aabb/k.x"}',
}
ENTRIES = pytest.mark.parametrize("entry", [NOT_AN_EVENT, A_RESULT, A_TIME_ALONE])


@contextmanager
def flood(url: str, job_id: JobId, entry: bytes) -> Iterator[None]:
    """Append an entry again and again, one command after the other."""
    attacker = open_store(url, Settings())
    begun, over = threading.Event(), threading.Event()

    def append() -> None:
        while not over.is_set():
            attacker.connection.redis.rpush(keys.log(job_id), entry)
            begun.set()

    thread = threading.Thread(target=append)
    thread.start()
    assert begun.wait(30)
    yield
    over.set()
    thread.join()
    attacker.connection.close()


@pytest.mark.slow
@ENTRIES
def test_a_job_ends_while_a_worker_appends_without_end(signed: SignedSystem, entry: bytes) -> None:
    job_id = signed.submit()

    with flood(signed.url, job_id, entry):
        assert signed.jobs.wait(job_id, 60) is JobStatus.OK


@pytest.mark.slow
@pytest.mark.parametrize("entry", NOT_UTF_8.values(), ids=NOT_UTF_8)
def test_an_entry_that_is_not_utf_8_stops_no_job_and_no_reader(
    signed: SignedSystem, held: JobId, entry: bytes
) -> None:
    """The job ends well: see `held`."""
    version = signed.store.connection.redis.rpush(keys.log(held), entry)

    recorded = signed.jobs.store.journal.read(held)[version - 1]

    assert isinstance(recorded.event, EventRefused)
    assert signed.jobs.result(held).status is JobStatus.RUNNING


FALSE_BATCH = b'1790000000000 {"type":"plan_made","signature":"fact/5000/aabb/k.x"}'


@pytest.mark.slow
@pytest.mark.parametrize("last", [NOT_AN_EVENT, FALSE_BATCH], ids=["no batch", "a false batch"])
@pytest.mark.parametrize("place", ["at the beginning", "behind a false batch"])
def test_a_part_of_a_journal_parses_few_other_entries(
    signed: SignedSystem, held: JobId, last: bytes, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread of a server reads the parts of all journals that its clients follow."""
    redis, log = signed.store.connection.redis, keys.log(held)
    behind = redis.rpush(log, *[NOT_AN_EVENT] * 5_000)
    redis.rpush(log, FALSE_BATCH, *[NOT_AN_EVENT] * 5_000, last)
    after = 0 if place == "at the beginning" else behind
    parsed: list[int] = []

    def counted(version: int, entry: bytes) -> RecordedEvent:
        parsed.append(version)
        return parse_entry(version, entry)

    monkeypatch.setattr(journal, "parse_entry", counted)

    assert len(signed.jobs.store.journal.read(held, after, 10)) == 10
    assert signed.jobs.store.journal.read_each({held: after})

    assert len(parsed) < 1_000


@pytest.mark.slow
def test_a_cancel_counts_while_a_worker_appends_without_end(signed: SignedSystem) -> None:
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()

    with flood(signed.url, job_id, NOT_AN_EVENT):
        signed.jobs.cancel(job_id)
        ended = signed.jobs.wait(job_id, 60)
    signed.jobs.unpause(GENERALIST)

    assert ended is JobStatus.CANCELLED


@pytest.mark.slow
def test_an_ended_job_is_retried_while_a_worker_appends_without_end(signed: SignedSystem) -> None:
    job_id = signed.submit()
    signed.jobs.wait(job_id, 60)

    with flood(signed.url, job_id, NOT_AN_EVENT):
        signed.jobs.retry(job_id, "answer")
        assert signed.jobs.wait(job_id, 60) is JobStatus.OK


@pytest.mark.slow
def test_many_refused_events_have_few_dead_letters(signed: SignedSystem) -> None:
    job_id = signed.submit()
    signed.jobs.wait(job_id, 60)
    signed.store.connection.redis.rpush(keys.log(job_id), *[NOT_AN_EVENT] * 5_000)
    signed.store.connection.redis.zadd(keys.DUE, {job_id: 1})

    signed.wait_for_letter(f"more events of {job_id}")

    letters = [letter for letter in signed.letters() if job_id in letter.reason]
    assert 1 <= len(letters) <= MAX_LETTERS + 1


@pytest.mark.slow
def test_a_list_of_jobs_shows_no_reason_of_an_unsigned_end(signed: SignedSystem) -> None:
    job_id = signed.submit()
    signed.jobs.wait(job_id, 60)
    end = JobEnded(status=JobStatus.FAILED, reason="pay to account 4711").to_json()
    signed.store.connection.redis.rpush(keys.log(job_id), f"1790000000000 {end}")

    assert signed.jobs.store.journal.read_end_reasons([job_id]) == {}


@pytest.mark.slow
def test_a_payload_under_the_guessed_digest_of_a_result_fails_no_step(
    signed: SignedSystem,
) -> None:
    """The offline model answers the same request with the same words."""
    earlier = signed.submit()
    signed.jobs.wait(earlier, 60)
    (known,) = results_in(signed.jobs.store, earlier)
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    wait_until(lambda: signed.store.journal.read_all(job_id)[1:], expected="the handoff")
    guess = known.model_copy(update={"job_id": job_id}).to_json()
    redis = signed.store.connection.redis
    redis.hsetnx(keys.blobs(job_id), compute_digest(guess), b"=other")
    signed.jobs.unpause(GENERALIST)

    assert signed.jobs.wait(job_id, 60) is JobStatus.OK
    (result,) = results_in(signed.jobs.store, job_id)
    assert result.output == known.output
    assert result.word != known.word


def results_in(store: Store, job_id: JobId) -> list[HandoffResult]:
    """Return the results of a job."""
    results: list[HandoffResult] = []
    for recorded in store.journal.read_all(job_id):
        if isinstance(recorded.event, HandoffFinished):
            digest = recorded.event.result.digest
            results.append(HandoffResult.from_json(store.payloads.get(job_id, [digest])[digest]))
    return results


@pytest.mark.parametrize("role", ["planner", "assessor"])
def test_a_supervisor_replaces_a_payload_under_the_digest_of_a_result(
    store: Store, role: str
) -> None:
    job_id = a_job(store)
    issue(store, job_id, f"{role}.1", role=role, group=None)
    claim = granted_claim(store, job_id, f"{role}.1")
    text = result_of(claim, "An answer.").to_json()
    store.connection.redis.hsetnx(keys.blobs(job_id), compute_digest(text), b"=other")

    finish(claim, "An answer.")

    assert store.payloads.get(job_id, [compute_digest(text)]) == {compute_digest(text): text}


@pytest.mark.slow
def test_a_long_entry_is_not_validated_before_its_signature_is_checked(
    signed: SignedSystem,
) -> None:
    """A validator takes 2,300 bytes and 10 microseconds for each wrong value."""
    values = json.dumps([[]] * 500)
    entry = f'1790000000000 {{"type":"handoff_finished","usage":{values}}}'.encode()

    (recorded,) = signed.jobs.store.journal.parse(0, [entry])

    assert recorded.problem == LONG_EVENT


@pytest.mark.slow
def test_a_long_event_of_a_worker_that_cannot_be_read_is_refused(signed: SignedSystem) -> None:
    """Otherwise the job would wait for a supervisor of a newer version."""
    job_id = a_job(signed.jobs.store)
    text = json.dumps({"type": "handoff_finished", "usage": [[]] * MAX_UNSIGNED_VALUES})
    signature = signed.trust_of("worker-researcher").code_events(FACT, job_id, "word", text)
    entry = f'1790000000000 {text[:-1]},"signature":"{FACT}/1/word/{signature}"}}'
    signed.store.connection.redis.rpush(keys.log(job_id), entry)

    recorded = signed.jobs.store.journal.read(job_id)[-1]
    signed.store.jobs.delete(job_id)

    assert isinstance(recorded.event, EventRefused)
    assert "cannot be read" in recorded.event.reason


@pytest.mark.slow
def test_a_worker_that_signs_many_long_wrong_events_costs_one_validation(
    signed: SignedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validator takes 10 microseconds for each wrong value, and all streams of a server wait."""
    job_id = a_job(signed.jobs.store)
    text = json.dumps({"type": "handoff_finished", "usage": [[]] * MAX_UNSIGNED_VALUES})
    for word in map(str, range(50)):
        signature = signed.trust_of("worker-researcher").code_events(FACT, job_id, word, text)
        entry = f'1790000000000 {text[:-1]},"signature":"{FACT}/1/{word}/{signature}"}}'
        signed.store.connection.redis.rpush(keys.log(job_id), entry)
    parsed: list[bytes] = []

    def counted(raw: bytes) -> Event:
        parsed.append(raw)
        return parse_event(raw)

    monkeypatch.setattr(journal_signature_check, "parse_event", counted)
    events = signed.jobs.store.journal.read(job_id)
    signed.store.jobs.delete(job_id)

    assert len(events) == 51
    assert len(parsed) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("identity", "kind"), [("supervisor", "plan_made"), ("worker-researcher", "event_refused")]
)
def test_a_long_event_counts_if_a_supervisor_has_signed_it(
    signed: SignedSystem, identity: str, kind: str
) -> None:
    count = MAX_WORKER_VALUES // 5
    steps = tuple(StepOutline(id=StepId(f"s{n}"), specialist="writer") for n in range(count))
    event = PlanMade(plan=make_ref("the plan"), steps=steps)
    job_id = a_job(signed.jobs.store)
    text = event.to_json()
    signature = signed.trust_of(identity).code_events(FACT, job_id, "word", text)
    entry = f'1790000000000 {text[:-1]},"signature":"{FACT}/1/word/{signature}"}}'
    signed.store.connection.redis.rpush(keys.log(job_id), entry)

    recorded = signed.jobs.store.journal.read(job_id)[-1]
    signed.store.jobs.delete(job_id)

    assert recorded.event.type == kind


@pytest.mark.slow
def test_an_entry_that_is_longer_than_any_event_is_not_validated() -> None:
    with pytest.raises(MalformedMessage, match="too long for an event"):
        parse_entry(1, b"1790000000000 " + b"x" * (MAX_EVENT_BYTES + 1))


@pytest.mark.slow
def test_a_worker_adds_few_questions_to_the_state_of_a_job(signed: SignedSystem) -> None:
    """60,000 questions took 5 GB of a supervisor, and the job could not be cancelled."""
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    issued = issued_in(signed.store, job_id)
    assert issued is not None
    trust, arguments = signed.trust_of(f"worker-{GENERALIST}"), make_ref("{}")
    entries: list[str] = []
    for number in range(MAX_FACTS_OF_HANDOFF + 500):
        call = CallInQuestion(
            handoff_id=issued.handoff_id,
            call_id=f"c{number}",
            tool="fetch_url",
            arguments=arguments,
            input_schema=arguments,
            origins={},
        )
        asked = ApprovalAsked(what=ApprovalOf.TOOLS, why="w", wait_s=600, call=call)
        (event,) = sign_events(trust, job_id, [asked])
        entries.append(f"{int(signed.store.connection.now() * 1000)} {event}")
    for piece in (entries[:500], entries[500:]):
        signed.store.connection.redis.rpush(keys.log(job_id), *piece)
        signed.store.connection.redis.zadd(keys.DUE, {job_id: 1})

    signed.wait_for_letter("has too many questions")
    events = [recorded.event for recorded in signed.jobs.store.journal.read(job_id)]

    assert sum(isinstance(event, ApprovalAsked) for event in events) == MAX_FACTS_OF_HANDOFF
    assert sum(isinstance(event, EventRefused) for event in events) == 500
    signed.jobs.cancel(job_id)
    ended = signed.jobs.wait(job_id, 60)
    signed.jobs.unpause(GENERALIST)
    assert ended is JobStatus.CANCELLED


def overtaken(store: Store, *, ignores_workers: bool) -> Commit:
    """Return a decision on the first event of a job."""
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    abandoned = StepsAbandoned(steps=(), why="no time")
    return Commit(job_id, expected=2, events=[abandoned], ignores_workers=ignores_workers)


def test_a_decision_that_ignores_workers_is_committed_after_their_events(store: Store) -> None:
    commit = overtaken(store, ignores_workers=True)
    store.connection.redis.rpush(keys.log(commit.job_id), NOT_AN_EVENT)

    (recorded,) = store.journal.commit(commit)

    assert recorded.version == 4


def test_no_decision_is_committed_after_an_unknown_action_of_a_user(store: Store) -> None:
    commit = overtaken(store, ignores_workers=True)
    store.journal.append(commit.job_id, CancelRequested())
    store.connection.redis.rpush(keys.log(commit.job_id), NOT_AN_EVENT)

    with pytest.raises(VersionConflict):
        store.journal.commit(commit)


def test_other_decisions_are_not_committed_after_an_event_of_a_worker(store: Store) -> None:
    commit = overtaken(store, ignores_workers=False)
    store.connection.redis.rpush(keys.log(commit.job_id), NOT_AN_EVENT)

    with pytest.raises(VersionConflict):
        store.journal.commit(commit)


def test_an_entry_without_a_space_has_the_same_time_for_all_readers(store: Store) -> None:
    job_id = a_job(store)
    store.connection.redis.rpush(keys.log(job_id), A_TIME_ALONE + b" {}", A_TIME_ALONE)

    with pytest.raises(MalformedMessage, match="no time"):
        parse_entry(3, A_TIME_ALONE)


def test_a_journal_without_a_job_counts_for_nothing(store: Store) -> None:
    """A client may compute the id of a job with an idempotency key in advance."""
    job_id = store.job_ids.derive("acme", "a key")
    store.connection.redis.rpush(keys.log(job_id), NOT_AN_EVENT)
    store.connection.redis.expire(keys.log(job_id), 60)

    assert store.journal.read_first_events([job_id]) == {}


def test_a_false_number_of_open_parts_holds_up_no_job_until_its_deadline(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", group="g1")
    store.connection.redis.hset(keys.progress(job_id), "g:g1", 99_999)

    finish(granted_claim(store, job_id, "a.1"))

    due_at = store.connection.redis.zscore(keys.due("researcher"), job_id)
    assert due_at is not None
    assert due_at / 1000 < store.connection.now() + 150


def test_a_result_has_a_limited_number_of_values() -> None:
    text = f'{{"claims":[{"[]," * (MAX_RESULT_VALUES + 1)}[]]}}'

    with pytest.raises(MalformedMessage, match="more than 600,000 values"):
        HandoffResult.from_json(text)


def test_a_long_entry_of_a_fetched_page_is_left_out(store: Store) -> None:
    job_id = a_job(store)
    page = Document(path="https://example.org/", digest="a" * 64, media_type="text/html", chars=5)
    long = page.model_copy(update={"path": "https://example.org/" + "x" * SHORT_BYTES})
    store.connection.redis.rpush(keys.fetched_pages(job_id), long.to_json(), page.to_json())

    assert store.payloads.load_fetched_pages(job_id) == [page]


def test_a_long_sample_of_the_history_is_left_out(store: Store) -> None:
    sample = '{"at":1,"usd":2,"ms":3,"waited_ms":0,"turns":1,"bucket":null,"saved":0}'
    history = keys.history("researcher")
    store.connection.redis.lpush(history, sample, sample + " " * MAX_SAMPLE_BYTES)
    store.connection.redis.expire(history, 60)

    samples, _ = store.history.read(["researcher"])

    assert len(samples["researcher"]) == 1


def test_a_list_of_jobs_reads_no_long_entry(store: Store) -> None:
    """A validator takes 10 microseconds for each wrong value, and the list waits."""
    job_id = a_job(store)
    reasons = ',"reason":"no worker"' * MAX_WORKER_VALUES
    end = f'{{"type":"job_ended","status":"failed"{reasons}}}'
    store.connection.redis.rpush(keys.log(job_id), f"1 {end}")

    assert store.journal.read_end_reasons([job_id]) == {}
