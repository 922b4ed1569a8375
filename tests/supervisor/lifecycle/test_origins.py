"""The origins of a job's texts, computed from its journal."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.shared.types.events import HandoffFinished, RecordedEvent
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.origins import DOCUMENT
from handoff_queue.shared.types.step import ItemRef, Step
from handoff_queue.supervisor.lifecycle.origins import find_job_origins, find_step_origins
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.role_events import build_outline
from tests.doubles.handoffs import JOB
from tests.golden.test_journals import JOURNALS, read

(JOURNAL,) = [path for path in JOURNALS if path.stem == "origins"]
"""`read` has read a document, and its question has added the step `read_help`."""
TAINTED = ("document", "model", "user")


def state_with(handoff_id: str, origins: tuple[str, ...] | None) -> JobState:
    """Return the state of the job if one handoff has reported other origins."""
    events: list[RecordedEvent] = []
    for recorded in read(JOURNAL):
        event = recorded.event
        if isinstance(event, HandoffFinished) and event.handoff_id == handoff_id:
            event = event.model_copy(update={"origins": origins})
        events.append(replace(recorded, event=event))
    state = fold(JOB, None, events)
    assert state is not None
    return state


def test_a_result_without_origins_counts_as_private_and_untrusted() -> None:
    state = state_with("read.1", None)
    assert state.steps[StepId("read")].origins == TAINTED


def test_a_worker_cannot_leave_out_the_origins_of_its_task_and_its_inputs() -> None:
    state = state_with("read_help.1", ())
    helper, read_step = StepId("read_help"), StepId("read")

    assert state.steps[helper].origins == TAINTED
    assert find_step_origins(state, read_step, [helper]) == TAINTED
    assert find_job_origins(state) == TAINTED


def test_the_item_of_a_repeated_step_counts_as_a_document() -> None:
    plain = Step(id=StepId("answer"), specialist="writer", task="Answer the letter.")
    item = ItemRef(step="answer", each="rows", n=1, key="1")

    assert build_outline(plain, ()).origins is None
    assert build_outline(plain.model_copy(update={"row": item}), ()).origins == (DOCUMENT,)
