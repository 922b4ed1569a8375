"""The log of a job has one line per event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.events import (
    AnswerMethod,
    CancelRequested,
    ConflictsFound,
    Event,
    FactsChecked,
    JobEnded,
    JobStatus,
    NeedsResolved,
    RetryRequested,
    Reviewed,
    StepOutline,
    StepsAbandoned,
    Synthesized,
    UserMessageSent,
    UserMessageTaken,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import ResultStatus, SharedRun, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.plan import Patch, Repeat
from handoff_queue.shared.types.review import Decision, Verdict
from handoff_queue.shared.types.step import Step
from handoff_queue.shared.types.step_events import CheckVerdict, FactCheck, WrongStatement
from handoff_queue.supervisor.cli.display.event_lines import (
    LINES,
    iterate_arrivals,
    iterate_lines,
    iterate_new_claims,
    iterate_new_waits,
    iterate_newly_missing,
)
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, JobView
from handoff_queue.supervisor.client.waiting_reasons import WaitingReason
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, list_refs_with_texts
from tests.doubles.handoffs import a_result
from tests.golden.test_journals import JOURNALS, read
from tests.supervisor.cli.job_events import (
    JOB,
    PLANNED,
    REF,
    RESULT_TEXTS,
    SUBMITTED,
    fact_check_events,
    finished,
    issued,
    recorded,
    replanner_events,
    reviewed,
    view_of,
)

BEFORE: tuple[Event, ...] = (
    SUBMITTED,
    issued("planner", "planner", group=None),
    finished("planner"),
    PLANNED,
    issued("left", "researcher"),
)


def lines_about(moment: JobUpdate) -> list[str]:
    return [line for _, line in iterate_lines(moment)]


def last_line(*events: Event) -> str:
    view = view_of(*BEFORE, *events)
    return lines_about(JobUpdate(view, tuple(recorded(*BEFORE, *events))))[-1]


def test_each_kind_of_event_has_a_function_for_its_line() -> None:
    assert set(LINES) == set(get_args(Event))


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_the_line_of_an_event_reads_only_the_texts_that_are_loaded_for_it(path: Path) -> None:
    journal = read(path)
    unloaded: set[str] = set()
    for number, entry in enumerate(journal, start=1):
        output = {}
        if isinstance(entry.event, Reviewed):
            output = Verdict(verdict=Decision.PASS).model_dump(mode="json")
        text = a_result("assessor", output).to_json()
        loaded = dict.fromkeys((ref.digest for ref in list_refs_with_texts(entry.event)), text)
        view = JobView(JOB, texts=ResultTexts(loaded)).apply_events(journal[:number])
        try:
            LINES[type(entry.event)](view, entry.event)
        except KeyError:
            unloaded.add(type(entry.event).__name__)

    assert not unloaded, f"refs_with_texts names no text of {', '.join(unloaded)}"


def test_the_log_describes_a_job_from_submission_to_plan() -> None:
    lines = lines_about(JobUpdate(view_of(*BEFORE), tuple(recorded(*BEFORE))))

    assert lines == [
        f"{JOB}: submitted with 3 documents",
        "planner: ok, 3 turns, 1,200 tokens",
        "plan: 2 steps: left (researcher), both (writer)",
        "left (researcher): handed over",
    ]


def test_the_log_line_of_a_plan_with_a_thousand_copies_is_short() -> None:
    first, last = PLANNED.steps
    copies = tuple(
        first.model_copy(update={"id": StepId(f"page_{n:04d}")}) for n in range(1, 1_001)
    )
    events = (*BEFORE[:3], PLANNED.model_copy(update={"steps": (first, *copies, last)}))
    line = lines_about(JobUpdate(view_of(*events), tuple(recorded(*events))))[-1]

    assert (
        line == "plan: 1,002 steps: left (researcher), page_0001 to page_1000 (researcher), both"
        " (writer)"
    )


def test_a_failure_is_logged_with_its_reason() -> None:
    line = last_line(finished("left", status=ResultStatus.FAILED, error="no such\ndocument"))

    assert line == "left (researcher): failed, 3 turns, 1,200 tokens: no such document"


def test_a_step_that_needs_input_is_shown_with_its_helper() -> None:
    helper = StepOutline(id=StepId("left_help"), specialist="writer")
    waits = StepOutline(
        id=StepId("left"), specialist="researcher", depends_on=(helper.id,), helpers=(helper.id,)
    )

    line = last_line(
        NeedsResolved(
            result=finished("planner").result,
            added=(helper,),
            changed=(waits,),
            given_up=(StepId("both"),),
        )
    )

    assert line == "left: waits for input from left_help (writer); both: given up"


def test_the_end_of_a_copy_names_the_handoff_that_paid() -> None:
    shared = SharedRun(job_id=JobId("j-0000000000aa"), handoff_id=HandoffId("find.1"))

    line = last_line(finished("left").model_copy(update={"shared": shared}))

    assert line.endswith("shared with j-0000000000aa find.1, paid there")


def test_every_other_event_has_a_log_line() -> None:
    assert last_line(reviewed(Verdict(verdict=Decision.PASS))) == "review, round 1: PASS"
    assert (
        last_line(Reviewed(round=1, decision=None, problem="no time"))
        == "review, round 1: none (no time)"
    )
    assert last_line(StepsAbandoned(steps=(), why="too late")).startswith("given up")
    assert (
        last_line(Synthesized(method=AnswerMethod.MERGED))
        == "answer: put together from the results of the steps"
    )
    assert last_line(CancelRequested()) == "cancel requested"
    assert last_line(JobEnded(status=JobStatus.OK)) == f"{JOB}: ok"
    assert (
        last_line(JobEnded(status=JobStatus.OK), RetryRequested())
        == "retry of the steps that did not succeed"
    )
    assert (
        last_line(WebhookTried(attempt=2, delivered=False, detail="404", end=2))
        == "webhook: try 2 failed: 404"
    )


def test_the_verdict_of_a_fact_checker_has_its_line() -> None:
    wrong = WrongStatement(statement="It is high.", why="It is\nlow.")
    fact_check = issued("fact_gate", "legal", group="g2")

    assert last_line(fact_check) == "fact_gate (legal): handed over"
    assert (
        last_line(fact_check, *fact_check_events(FactCheck(verdict=CheckVerdict.PASS)))
        == "facts: passed"
    )
    veto = last_line(
        fact_check, *fact_check_events(FactCheck(verdict=CheckVerdict.VETO, wrong=(wrong,)))
    )
    assert veto == 'facts: 1 objection: "It is high." is wrong: It is low., sent back'
    unsure = last_line(
        fact_check,
        *fact_check_events(FactCheck(verdict=CheckVerdict.CANNOT_SAY, why="Nothing is there.")),
    )
    assert unsure == "facts: not checked: the fact-checker could not say (Nothing is there.)"
    assert (
        last_line(FactsChecked(problem="no time was left for it"))
        == "facts: not checked: no time was left for it"
    )


def test_a_change_of_the_plan_is_shown_with_its_reason() -> None:
    step = Step(
        id=StepId("config"),
        specialist="ops",
        task="Check the configuration.",
        depends_on=(StepId("left"),),
    )
    repeat = Repeat(step=StepId("again"), earlier=StepId("left"))
    look = (
        issued("replanner", "replanner", group=None),
        *replanner_events(Patch(add=(step,), repeats=(repeat,), why="The code is sound.")),
    )

    assert (
        last_line(*look)
        == "replanner: config (ops) added; again not run, because left has the same task: The code"
        " is sound."
    )
    assert (
        last_line(look[0], *replanner_events(Patch(why="All is well.")))
        == "replanner: as it was: All is well."
    )


def test_each_claim_of_a_handoff_is_logged_once() -> None:
    before = view_of(*BEFORE, handoffs={"left.1": HandoffInfo("issued")})
    first = view_of(*BEFORE, handoffs={"left.1": HandoffInfo("running", claims=1, worker="host:1")})
    second = view_of(
        *BEFORE, handoffs={"left.1": HandoffInfo("running", claims=2, worker="host:2")}
    )

    assert list(iterate_new_claims(before, first)) == ["left (researcher): works, in host:1"]
    assert list(iterate_new_claims(first, first)) == []
    assert list(iterate_new_claims(first, second)) == [
        "left (researcher): works (claim 2), in host:2"
    ]


def test_a_dropped_handoff_is_not_shown_as_running() -> None:
    """A command that starts to watch a cancelled job shows the last state of its handoffs."""
    dropped = view_of(
        *BEFORE, handoffs={"left.1": HandoffInfo("dropped", claims=1, worker="host:1")}
    )

    assert list(iterate_new_claims(view_of(*BEFORE), dropped)) == []


@pytest.mark.parametrize(
    ("name", "expected_name"), [("left.1", "left (researcher)"), ("planner.1", "planner")]
)
def test_a_wait_for_a_rate_limit_is_logged_once(name: str, expected_name: str) -> None:
    def doing(activity: str) -> JobView:
        return view_of(*BEFORE, handoffs={name: HandoffInfo("running", claims=1, doing=activity)})

    assert list(iterate_new_waits(doing("thinking"), doing("waiting 12 s: rate limit"))) == [
        f"{expected_name}: waiting 12 s: rate limit"
    ]
    assert list(iterate_new_waits(view_of(*BEFORE), doing("waiting 12 s: rate limit"))) == [
        f"{expected_name}: waiting 12 s: rate limit"
    ]
    assert (
        list(iterate_new_waits(doing("waiting 12 s: rate limit"), doing("waiting 9 s: rate limit")))
        == []
    )
    assert list(
        iterate_new_waits(doing("waiting 9 s: rate limit"), doing("waiting 2 s: overloaded"))
    ) == [f"{expected_name}: waiting 2 s: overloaded"]
    assert list(iterate_new_waits(doing("waiting 2 s: overloaded"), doing("thinking"))) == []


def test_a_tool_whose_name_speaks_of_waiting_is_not_a_wait() -> None:
    works = view_of(
        *BEFORE, handoffs={"left.1": HandoffInfo("running", claims=1, doing="waiting_times")}
    )

    assert list(iterate_new_waits(view_of(*BEFORE), works)) == []


def test_a_missing_role_is_reported_once_and_so_is_its_return() -> None:
    sound = view_of(*BEFORE)
    one_step = replace(
        sound,
        waiting_reasons=(
            WaitingReason("a worker of `poet`", "start one with `handoff worker poet`", ("a",)),
        ),
    )
    two = replace(
        sound,
        waiting_reasons=(
            WaitingReason("a worker of `poet`", "start one with `handoff worker poet`", ("a", "b")),
        ),
    )

    assert list(iterate_newly_missing(sound, one_step)) == [
        "step a waits for a worker of `poet`: start one with `handoff worker poet`"
    ]
    assert list(iterate_newly_missing(one_step, one_step)) == []
    assert list(iterate_newly_missing(one_step, two)) == [
        "steps a, b wait for a worker of `poet`: start one with `handoff worker poet`"
    ]
    assert list(iterate_arrivals(one_step, two)) == []
    assert list(iterate_arrivals(two, sound)) == ["no longer waits for a worker of `poet`"]


def test_the_usage_of_a_handoff_is_the_usage_of_the_budget_or_an_upper_bound() -> None:
    info = HandoffInfo("done", turns=4, input_tokens=9_000, output_tokens=500, cut_calls=1)
    view = view_of(*BEFORE, finished("left"), handoffs={"left.1": info})

    assert (
        lines_about(JobUpdate(view, tuple(recorded(*BEFORE, finished("left")))))[-1]
        == "left (researcher): ok, 4 turns, ≤ 9,500 tokens"
    )


def test_the_tool_calls_of_an_ended_handoff_are_logged() -> None:
    info = HandoffInfo("done", turns=2, tool_calls=5, input_tokens=900, output_tokens=100)
    view = view_of(*BEFORE, finished("left"), handoffs={"left.1": info})

    assert lines_about(JobUpdate(view, tuple(recorded(*BEFORE, finished("left")))))[-1].endswith(
        "2 turns, 5 tool calls, 1,000 tokens"
    )


def test_the_lost_claims_of_an_ended_handoff_are_logged() -> None:
    info = HandoffInfo("done", turns=2, lost_claims=1, input_tokens=900, output_tokens=100)
    view = view_of(*BEFORE, finished("left"), handoffs={"left.1": info})

    assert lines_about(JobUpdate(view, tuple(recorded(*BEFORE, finished("left")))))[-1].endswith(
        "2 turns, 1,000 tokens, 1 lost claim"
    )


def test_contradictions_are_logged_only_if_there_are_any() -> None:
    none, some = ConflictsFound(), ConflictsFound(conflicts=(("left.c1", "both.c1"),), payload=REF)
    view = view_of(SUBMITTED, PLANNED)

    assert lines_about(JobUpdate(view, tuple(recorded(none, some)))) == [
        "contradictions: 1 conflict"
    ]


def test_a_message_has_a_line_when_it_is_sent_and_when_it_is_taken() -> None:
    text, message_id = make_ref("Ignore prices before 2020."), "0123456789abcdef"
    RESULT_TEXTS[text.digest] = "Ignore prices before 2020."
    events = (
        UserMessageSent(message_id=message_id, text=text),
        UserMessageSent(message_id="f" * 16, text=text, step=StepId("left")),
        UserMessageTaken(message_id=message_id, handoff_id=HandoffId("left.1"), turn=3),
    )

    assert lines_about(JobUpdate(view_of(*BEFORE, *events), tuple(recorded(*events)))) == [
        "message: Ignore prices before 2020.",
        "message to left: Ignore prices before 2020.",
        "left (researcher): takes the message at turn 3",
    ]
