"""Invariants of the fact check, and random results of a fact-checker."""

from __future__ import annotations

from random import Random

from handoff_queue.shared.types.events import FactsChecked, JobStatus
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.step_events import CheckVerdict
from handoff_queue.supervisor.lifecycle.gates import MAX_GATE_ROUNDS
from handoff_queue.supervisor.lifecycle.state import Phase
from tests.doubles.simulated_job import SimulatedJob


def check_facts(
    job: SimulatedJob, status: str = "ok", verdict: str | None = None, **wrong: str
) -> None:
    """Let the fact-checker answer: PASS without `wrong`, or a VETO of the wrong statements.

    `check_facts(job, so="It is not so.")` rejects the statement `so` with this reason.
    """
    statements = [{"statement": statement, "why": reason} for statement, reason in wrong.items()]
    output = {
        "verdict": verdict or ("VETO" if wrong else "PASS"),
        "wrong": statements,
        "why": "Held against the notes.",
    }
    job.finish(FACT_GATE, status, output=output)


def check_facts_randomly(job: SimulatedJob, dice: Random) -> None:
    """Let the fact-checker pass, object, abstain, fail, or answer in an unusable form."""
    match dice.randrange(5):
        case 0:
            job.finish(FACT_GATE, dice.choice(["failed", "needs_input"]))
        case 1:
            job.finish(
                FACT_GATE, dice.choice(["ok", "partial"]), output=dice.choice(["Looks good.", 1])
            )
        case 2:
            check_facts(job, dice.choice(["ok", "partial"]), so="It is not so.")
        case _:
            check_facts(job, verdict=dice.choice(["PASS", "PASS", "CANNOT_SAY"]))


def check_fact_check_begin(job: SimulatedJob) -> None:
    """Check that a fact check begins only on a complete answer.

    The gates in code have passed the answer. No step runs, no question to a person is open, and
    there is no earlier fact check. The planner may still resolve the need of an abandoned step.
    """
    state = job.state
    assert state.phase is Phase.ANSWERING
    assert state.gated is not None
    assert all(handoff.is_role_handoff for handoff in state.open.values())
    assert state.question is None
    assert state.fact_checks.outcome is None


def check_facts_were_checked(job: SimulatedJob) -> None:
    """Check that a complete answer has passed its fact check, and that the fact-checker sent it
    back at most `MAX_GATE_ROUNDS` times.
    """
    state = job.state
    assert state.gate_rounds <= MAX_GATE_ROUNDS
    if state.submitted.fact_checker and state.status is JobStatus.OK:
        last = job.events(FactsChecked)[-1]
        assert (last.wrong, last.problem, last.is_sent_back) == (0, None, False)
        check = job.texts.get_fact_check(last.result)
        assert check is not None
        assert check.verdict is CheckVerdict.PASS
