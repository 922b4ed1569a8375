"""Each promise about the HTTP API, schedules and followers has records that break it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos.api_user import (
    APPROVED_ANSWER,
    REJECTED_ANSWER,
    ApiRecords,
    FollowedJob,
    GivenAnswer,
    MessageRecord,
    QuestionRecord,
    ScheduleRecord,
)

CHAOS = "chaos by api"
YES, NO = GivenAnswer(APPROVED_ANSWER, CHAOS), GivenAnswer(REJECTED_ANSWER, CHAOS)
ASKED = QuestionRecord("1-0", 5, APPROVED_ANSWER, (YES,))
JOURNAL = [(1, "submitted"), (2, "asked"), (3, "ended")]
SLOTS = ScheduleRecord(
    "all", {"j-1": "09:00", "j-2": "10:00"}, ["j-3"], {"j-1": 1, "j-2": 1, "j-4": 1}, ["j-4"]
)
KEPT = ApiRecords(
    jobs_by_key={"1-0": {"j-1"}},
    questions=[ASKED],
    audited={"1-0": [CHAOS]},
    actor=CHAOS,
    schedules=[SLOTS],
    followed=[FollowedJob("1-0", JOURNAL, JOURNAL)],
)


def broken(records: ApiRecords) -> list[str]:
    """Return the lines about all breaches."""
    lines: list[str] = []
    for breaches in records.find_breaches().values():
        lines += breaches
    return lines


def test_a_run_in_which_each_request_had_its_one_effect_keeps_every_promise() -> None:
    assert broken(KEPT) == []
    assert broken(ApiRecords()) == []


def test_two_jobs_for_one_key_are_a_breach() -> None:
    assert broken(replace(KEPT, jobs_by_key={"1-0": {"j-1", "j-2"}})) == ["1-0: j-1, j-2"]


def test_an_internal_error_of_the_server_is_a_breach() -> None:
    assert broken(replace(KEPT, failures=["POST /v1/jobs: 500"])) == ["POST /v1/jobs: 500"]


@pytest.mark.parametrize(
    ("question", "breach"),
    [
        (
            replace(ASKED, recorded_answers=(NO,)),
            "1-0, question 5: rejected, and its user sent approved",
        ),
        (replace(ASKED, sent_answer=""), "1-0, question 5: approved, and its user sent no answer"),
        (
            replace(ASKED, recorded_answers=(replace(YES, actor="bob by cli"),)),
            "1-0, question 5: answered by bob by cli, not by chaos by api",
        ),
    ],
)
def test_an_answer_that_its_user_did_not_send_is_a_breach(
    question: QuestionRecord, breach: str
) -> None:
    assert breach in broken(replace(KEPT, questions=[question]))


def test_only_the_first_of_two_answers_counts_and_the_audit_names_its_actor_once() -> None:
    twice = replace(KEPT, questions=[replace(ASKED, recorded_answers=(YES, NO))])

    assert broken(twice) == []
    assert broken(replace(twice, audited={"1-0": [CHAOS, CHAOS]})) == [
        f"1-0: the audit names {[CHAOS, CHAOS]}, and {[CHAOS]} answered"
    ]
    assert broken(replace(twice, audited={})) == [
        f"1-0: the audit names nobody, and {[CHAOS]} answered"
    ]


def test_a_question_without_an_answer_is_not_a_breach() -> None:
    assert broken(replace(KEPT, questions=[replace(ASKED, recorded_answers=())], audited={})) == []


@pytest.mark.parametrize(
    ("schedule", "breach"),
    [
        (replace(SLOTS, stored_jobs={"j-1": 1, "j-4": 1}), "all: the slot 10:00 has no job"),
        (
            replace(SLOTS, stored_jobs={**SLOTS.stored_jobs, "j-5": 1}),
            "all: j-5 is of no slot, and no user started it",
        ),
        (replace(SLOTS, stored_jobs={**SLOTS.stored_jobs, "j-1": 2}), "all: j-1 ended 2 times"),
        (replace(SLOTS, stored_jobs={**SLOTS.stored_jobs, "j-2": 0}), "all: j-2 ended 0 times"),
        (
            replace(SLOTS, started_by_hand=["j-4", "j-6"]),
            "all: j-6 was started by hand, and is not there",
        ),
    ],
)
def test_a_slot_without_its_one_job_is_a_breach(schedule: ScheduleRecord, breach: str) -> None:
    assert broken(replace(KEPT, schedules=[schedule])) == [breach]


def test_a_slot_that_may_start_may_have_a_job() -> None:
    schedule = replace(SLOTS, stored_jobs={**SLOTS.stored_jobs, "j-3": 1})

    assert broken(replace(KEPT, schedules=[schedule])) == []


@pytest.mark.parametrize(
    "seen",
    [
        JOURNAL[:2],
        JOURNAL[1:],
        [JOURNAL[0], JOURNAL[0], *JOURNAL[1:]],
        [JOURNAL[1], JOURNAL[0], JOURNAL[2]],
        [*JOURNAL, JOURNAL[2]],
        [JOURNAL[0], (2, "another text"), JOURNAL[2]],
    ],
    ids=["last missed", "first missed", "seen twice", "out of order", "end twice", "other text"],
)
def test_a_follower_who_sees_other_events_than_the_journal_is_a_breach(
    seen: list[tuple[int, str]],
) -> None:
    (breach,) = broken(replace(KEPT, followed=[FollowedJob("1-0", seen, JOURNAL)]))
    assert breach.startswith("1-0: ")


TAKEN = MessageRecord("Shorter.", is_stored=True, events=1, takers=["answer.1"], calls=1)


@pytest.mark.parametrize(
    "message",
    [
        TAKEN,
        replace(TAKEN, is_stored=False, events=0, takers=[], calls=0),
        replace(TAKEN, calls=0, is_cut_off=True),
        replace(TAKEN, takers=[], calls=0, is_cut_off=True),
    ],
    ids=["taken once", "refused", "taken by a killed agent", "the agent was killed before"],
)
def test_a_message_is_taken_once_or_refused(message: MessageRecord) -> None:
    assert broken(replace(KEPT, messages=[message])) == []


@pytest.mark.parametrize(
    "message",
    [
        replace(TAKEN, events=2),
        replace(TAKEN, events=0),
        replace(TAKEN, is_stored=False),
        replace(TAKEN, takers=["answer.1", "answer.1"]),
        replace(TAKEN, calls=2),
        replace(TAKEN, calls=0),
        replace(TAKEN, takers=[]),
        replace(TAKEN, takers=[], calls=0),
        replace(TAKEN, takers=[], is_cut_off=True),
    ],
    ids=[
        "stored twice",
        "not stored",
        "refused and stored",
        "taken twice",
        "twice in a call",
        "in no call",
        "in a call without an event",
        "missed",
        "in a call of a killed agent without an event",
    ],
)
def test_a_message_that_an_agent_missed_or_had_twice_is_a_breach(message: MessageRecord) -> None:
    (breach,) = broken(replace(KEPT, messages=[message]))
    assert breach.startswith("message Shorter.: ")


def test_the_figures_count_requests_answers_jobs_and_events() -> None:
    refused = replace(TAKEN, is_stored=False, events=0, takers=[], calls=0)
    records = replace(
        KEPT,
        requests=20,
        unanswered=3,
        taken_over=2,
        servers=2,
        reconnections=2,
        messages=[TAKEN, TAKEN, refused],
    )

    assert list(records.collect_figures().values()) == [20, 3, 2, 2, 1, 2, 1, 3, 3, 2]
