"""The live text of an answer cites the sources of the steps that made its claims."""

from __future__ import annotations

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.client.answer_draft import AnswerDraft
from tests.doubles.jobs import a_job, finish_with, granted_claim, issue, result_of
from tests.supervisor.lifecycle.test_citation_numbers import citation_of, claim_of


def finish_step(store: Store, job_id: JobId, step: str, claim: Claim) -> HandoffFinished:
    issue(store, job_id, f"{step}.1")
    claimed = granted_claim(store, job_id, f"{step}.1")
    result = result_of(claimed).model_copy(update={"claims": (claim,)})
    finish_with(claimed, result)
    return build_handoff_finished_event(result, "w1")


def test_the_result_of_a_step_decides_about_the_claim_with_its_name(store: Store) -> None:
    """A worker that was taken over may write the claim of another step without a source. The live
    text would then end before it.
    """
    job_id = a_job(store)
    own = finish_step(store, job_id, "find", claim_of("find.c1", citation_of("a.md")))
    forged = finish_step(store, job_id, "other", claim_of("find.c1"))
    issue(store, job_id, f"{Role.SYNTHESIZER}.1", role=Role.SYNTHESIZER, group=None)
    writing = granted_claim(store, job_id, f"{Role.SYNTHESIZER}.1")
    writing.heartbeat("writing", "It is so. [find.c1] The end.")
    writing.renew()

    for finished in ([own, forged], [forged, own]):
        draft = AnswerDraft(store)
        text = draft.take_new_part(job_id, HandoffId(f"{Role.SYNTHESIZER}.1"), finished)
        assert text == "It is so. [1] The end."
