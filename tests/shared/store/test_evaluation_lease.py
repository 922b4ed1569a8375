"""Evaluations of a job: recorded at their begin, removed at their end. A job with too many
evaluations without an end, in a row, fails.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claims import MAX_LOOKS, ClaimRequest
from handoff_queue.shared.store.evaluation_lease import TOGETHER_S
from handoff_queue.shared.store.frozen_process import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.journal import READ_AT_MOST, Commit
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import PoisonJob, TooManyEvaluators, VersionConflict
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId, new_job_id
from tests.doubles.jobs import a_job, finish, issue, issued, version_of
from tests.doubles.sweep_states import looks_begun_ago, looks_noted, silent_for, woken_ago
from tests.waiting import wait_until

GIVEN_UP_S = FROZEN_AFTER_LEASES * 3_600.0
"""The same for every store in this file."""
LONG_AGO = tuple(GIVEN_UP_S * (MAX_LOOKS - n) + 60 - n for n in range(MAX_LOOKS))
"""As often as may be, each after the one before was given up, a look that was not heard of again.
"""


def heard_of(store: Store, job_id: JobId) -> dict[str, int]:
    """Return the time of the last sign of life of each recorded evaluation (Unix ms)."""
    words = store.connection.redis.hget(keys.job(job_id), "looks").decode().split()
    return {name: int(at_ms) for name, at_ms in (word.split(":") for word in words)}


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store)


def test_a_look_reads_what_the_journal_has_after_a_version(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, CancelRequested())

    assert store.evaluation_leases.at(job_id).begin() == store.journal.read(job_id)
    assert store.evaluation_leases.at(job_id).begin(1) == store.journal.read(job_id, 1)
    assert store.evaluation_leases.at(job_id).begin(2) == []


def test_a_long_journal_is_read_to_its_end(store: Store, job_id: JobId) -> None:
    many = [CancelRequested()] * (READ_AT_MOST + 5)
    store.journal.commit(Commit(job_id=job_id, expected=1, events=many))

    assert [recorded.version for recorded in store.evaluation_leases.at(job_id).begin()] == list(
        range(1, READ_AT_MOST + 7)
    )


def test_a_look_at_no_job_is_noted_nowhere(store: Store) -> None:
    nobody = new_job_id()

    assert store.evaluation_leases.at(nobody).begin() == []
    assert not store.connection.redis.exists(keys.job(nobody))


def test_a_look_that_is_said_to_begin_twice_is_one(store: Store, job_id: JobId) -> None:
    look = store.evaluation_leases.at(job_id)
    look.begin()
    look.begin()

    assert looks_noted(store, job_id) == 1


@pytest.mark.parametrize("how", ["commit", "due", "stumble", "interrupted"])
def test_a_look_that_comes_to_its_end_strikes_out_itself_and_what_began_before_it(
    store: Store, job_id: JobId, how: str
) -> None:
    ending, later = store.evaluation_leases.at(job_id), store.evaluation_leases.at(job_id)
    ending.begin()
    later.begin()
    begun = store.connection.redis.hget(keys.job(job_id), "looks")
    looks_begun_ago(store, job_id, *LONG_AGO[1:])
    before = store.connection.redis.hget(keys.job(job_id), "looks")
    store.connection.redis.hset(keys.job(job_id), "looks", before + b" " + begun)

    match how:
        case "commit":
            store.journal.commit(
                Commit(job_id=job_id, expected=1, events=[CancelRequested()], look=ending.name)
            )
        case "due":
            store.journal.set_due(job_id, None, 1, look=ending.name)
        case "stumble":
            store.journal.stumble(job_id, look=ending.name)
        case _:
            ending.interrupted()

    assert store.connection.redis.hget(keys.job(job_id), "looks").startswith(later.name.encode())
    assert looks_noted(store, job_id) == 1


def test_a_commit_that_is_refused_ends_no_look(store: Store, job_id: JobId) -> None:
    look = store.evaluation_leases.at(job_id)
    look.begin()

    with pytest.raises(VersionConflict):
        store.journal.commit(
            Commit(job_id=job_id, expected=7, events=[CancelRequested()], look=look.name)
        )

    assert looks_noted(store, job_id) == 1


def test_a_look_goes_on_when_what_it_runs_has_finished(store: Store, job_id: JobId) -> None:
    look, event = store.evaluation_leases.at(job_id), issued("judge.1", role="judge", group=None)
    issue(store, job_id, "judge.1", role="judge", group=None)
    claim = store.claims.claim(
        ClaimRequest(
            job_id, HandoffId("judge.1"), event.handoff.digest, "supervisor:1", look=look.name
        )
    )
    while_it_runs = looks_noted(store, job_id)

    finish(claim)

    assert (while_it_runs, looks_noted(store, job_id)) == (0, 1)


def test_a_look_after_so_many_that_never_ended_is_not_to_be_had(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, *LONG_AGO)

    with pytest.raises(PoisonJob):
        store.evaluation_leases.at(job_id).begin()


def test_whoever_ends_such_a_job_may_freeze_at_it_too_and_is_alone(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, *LONG_AGO)
    with pytest.raises(PoisonJob):
        store.evaluation_leases.at(job_id).begin()

    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.at(job_id).begin()

    looks_begun_ago(store, job_id, *LONG_AGO, GIVEN_UP_S + 1)
    with pytest.raises(PoisonJob):
        store.evaluation_leases.at(job_id).begin()


def test_one_less_is_no_reason(store: Store, job_id: JobId) -> None:
    looks_begun_ago(store, job_id, *LONG_AGO[1:])

    assert store.evaluation_leases.at(job_id).begin()


def test_while_one_shows_whether_the_job_still_fails_nobody_else_begins_and_it_is_due_again_soon(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, LONG_AGO[-1], 60)
    woken_ago(store, 0, job_id)

    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.at(job_id).begin()

    due_in = store.connection.redis.zscore(keys.DUE, job_id) / 1000 - store.connection.now()
    assert due_in == pytest.approx(TOGETHER_S, abs=0.2)
    assert store.connection.redis.zscore(keys.WAITING + "supervisor", job_id) is None, (
        "its wake-up was taken"
    )
    assert looks_noted(store, job_id) == 2


def test_once_the_job_has_failed_one_begins_and_none_beside_it_not_even_in_the_same_moment(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, LONG_AGO[-1])

    assert store.evaluation_leases.at(job_id).begin()
    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.at(job_id).begin()


def test_before_any_is_given_up_so_many_may_be_frozen_and_no_more(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, *(60 - n for n in range(MAX_LOOKS - 1)))
    assert store.evaluation_leases.at(job_id).begin()

    looks_begun_ago(store, job_id, *(60 - n for n in range(MAX_LOOKS)))
    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.at(job_id).begin()


def test_looks_that_began_before_the_first_was_given_up_count_as_one(
    store: Store, job_id: JobId
) -> None:
    """Several processes can die within seconds, for example with their machine."""
    looks_begun_ago(store, job_id, *(GIVEN_UP_S + 60 - n for n in range(3 * MAX_LOOKS)))

    assert store.evaluation_leases.at(job_id).begin()


def test_any_number_of_looks_may_begin_at_once(store: Store, job_id: JobId) -> None:
    for _ in range(5 * MAX_LOOKS):
        assert store.evaluation_leases.at(job_id).begin()


def test_of_one_that_takes_long_it_is_said_that_it_lives(redis_url: str) -> None:
    """By the thread that renews leases: of a process that froze, nothing is said."""
    lease_s = 0.3
    store = open_store(redis_url, Settings(lease_s=lease_s))
    leases, job_id = Leases(redis_url, lease_s, watchdog=False), a_job(store)
    leases.start()
    slow, frozen = store.evaluation_leases.at(job_id), store.evaluation_leases.at(job_id)
    slow.begin()
    frozen.begin()
    began = heard_of(store, job_id)

    with leases.shown(slow.sign_of_life):
        later = FROZEN_AFTER_LEASES * lease_s * 1000
        wait_until(
            lambda: heard_of(store, job_id)[slow.name] > began[slow.name] + later,
            what="signs of life",
        )

    assert heard_of(store, job_id)[frozen.name] == began[frozen.name]
    leases.stop()
    store.connection.close()


def test_a_sign_of_life_brings_back_no_look_that_is_not_noted(store: Store, job_id: JobId) -> None:
    look = store.evaluation_leases.at(job_id)
    look.begin()
    look.interrupted()

    store.connection.script("evaluate", *look.sign_of_life)

    assert looks_noted(store, job_id) == 0


def test_one_that_lives_is_none_of_those_that_froze_before_it(store: Store, job_id: JobId) -> None:
    looks_begun_ago(store, job_id, *LONG_AGO)
    redis = store.connection.redis
    first = redis.hget(keys.job(job_id), "looks").decode().partition(":")[0]

    store.connection.script(
        "evaluate", [keys.job(job_id), keys.DUE, keys.log(job_id)], [first, "lives"]
    )

    with pytest.raises(TooManyEvaluators):  # there is one, and the job is not given up
        store.evaluation_leases.at(job_id).begin()


def test_time_in_which_nobody_could_speak_to_redis_makes_no_look_a_frozen_one(
    store: Store, job_id: JobId
) -> None:
    looks_begun_ago(store, job_id, *LONG_AGO)
    silent_for(store, LONG_AGO[0])

    with pytest.raises(TooManyEvaluators):
        store.evaluation_leases.at(job_id).begin()


def test_what_a_supervisor_without_looks_does_leaves_those_of_others_as_they_are(
    store: Store, job_id: JobId
) -> None:
    """The supervisor's version has no evaluation leases. It decides between two evaluations of this
    version.
    """
    looks_begun_ago(store, job_id, *LONG_AGO[1:])
    store.journal.commit(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=[CancelRequested()])
    )

    assert looks_noted(store, job_id) == MAX_LOOKS - 1
