"""Submit jobs to a real store, and issue, claim and finish handoffs without a supervisor."""

from __future__ import annotations

import math
from hashlib import sha1
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, FinishReply, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.budget_measures import MEASURES, SPENT_FIELDS
from handoff_queue.shared.types.checkpoints import ModelReplied, WorstCase
from handoff_queue.shared.types.errors import Interrupted
from handoff_queue.shared.types.events import (
    CancelRequested,
    Child,
    Event,
    HandoffFinished,
    HandoffIssued,
    JobSubmitted,
)
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, create_job_id
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.usage import Usage


def submission(
    request: str = "Compare things.", limits: JobLimits | None = None, **changes: Any
) -> JobSubmitted:
    return JobSubmitted(
        request=make_ref(request), title=request, limits=limits or JobLimits(), **changes
    )


def a_job(
    store: Store,
    tenant: str = "default",
    parent: tuple[JobId, HandoffId] | None = None,
    /,
    **accounts: int,
) -> JobId:
    """Submit a job, and return its id.

    Args:
        parent: job and handoff of the parent, for a child job.
        accounts: limits of the job: `max_turns`, `max_tokens` and `max_usd`.
    """
    job_id = (
        JobId(store.connection.redis.hget(handoff_key(store, *parent), "child").decode())
        if parent
        else create_job_id()
    )
    fields: dict[str, str | int] = {"status": "running", "tenant": tenant, **accounts}
    due_at = store.connection.now() + 3_600
    event, text = submission(), "Compare things."
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=0,
            events=[event],
            payloads=[text],
            fields=fields,
            due_at=due_at,
            creates=True,
            parent=parent,
        )
    )
    return job_id


def handoff_key(store: Store, job_id: JobId, handoff_id: HandoffId) -> str:
    """Return the key with the state of a handoff."""
    return keys.handoff(job_id, _role_of(store, job_id, handoff_id), handoff_id)


def turns_key(store: Store, job_id: JobId, handoff_id: HandoffId) -> str:
    """Return the key with the turns of a handoff."""
    return keys.turns(job_id, _role_of(store, job_id, handoff_id), handoff_id)


def _role_of(store: Store, job_id: JobId, handoff_id: HandoffId) -> str:
    role: bytes = store.connection.redis.hget(keys.agents(job_id), handoff_id)
    return role.decode()


def drop_handoff(store: Store, job_id: JobId, handoff_id: str) -> None:
    """Commit the cancel of a job, and drop a handoff."""
    dropped = [HandoffId(handoff_id)]
    events = [CancelRequested()]
    store.journal.commit(Commit(job_id, version_of(store, job_id), events, drop=dropped))


def version_of(store: Store, job_id: JobId) -> int:
    return store.jobs.read([job_id])[0].version


def text_of(handoff_id: str) -> str:
    """Return a text in place of the handoff's message. The store uses only its digest."""
    return f"the message of {handoff_id}"


def issued_event(
    handoff_id: str,
    role: str = "researcher",
    group: str | None = "g1",
    index: int = 0,
    max_microusd: int | None = None,
) -> HandoffIssued:
    step, _, attempt = handoff_id.partition(".")
    return HandoffIssued(
        handoff_id=HandoffId(handoff_id),
        step_id=StepId(step),
        attempt=int(attempt),
        assigned_to=role,
        handoff=make_ref(text_of(handoff_id)),
        specialist=compute_digest("spec"),
        group=group,
        index=index,
        max_microusd=max_microusd,
    )


def issue_handoff(store: Store, handoff: AgentHandoff, *payloads: str) -> None:
    """Issue one handoff with its message to the specialist `researcher`, due in an hour.

    Args:
        payloads: texts that the handoff refers to by their digests.
    """
    event = HandoffIssued(
        handoff_id=handoff.handoff_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        assigned_to="researcher",
        handoff=make_ref(handoff.to_json()),
        specialist=handoff.specialist,
        group="g1",
    )
    store.journal.commit(
        Commit(
            job_id=handoff.job_id,
            expected=version_of(store, handoff.job_id),
            events=[event],
            payloads=list(payloads),
            due_at=store.connection.now() + 3_600,
        )
    )


def issue(
    store: Store,
    job_id: JobId,
    *handoff_ids: str,
    role: str = "researcher",
    group: str | None = "g1",
    max_microusd: int | None = None,
    job_s: float | None = None,
) -> None:
    """Issue these handoffs as one group.

    Args:
        job_s: seconds that the job may run from now on; None: its retention begins now.
    """
    events = [
        issued_event(handoff_id, role, group, index, max_microusd)
        for index, handoff_id in enumerate(handoff_ids)
    ]
    now = store.connection.now()
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=events,
            deadline=None if job_s is None else now + job_s,
            due_at=now + 3_600,
        )
    )


def issue_to_a_child(store: Store, job_id: JobId, handoff_id: str) -> JobId:
    """Issue a handoff for a child job, and return the id of the child job, which is not
    submitted yet.
    """
    child = Child(job_id=create_job_id(), limits=JobLimits())
    event = issued_event(handoff_id, "supervisor", None).model_copy(update={"child": child})
    due_at = store.connection.now() + 3_600
    store.journal.commit(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=[event], due_at=due_at)
    )
    return child.job_id


def claim(
    store: Store,
    job_id: JobId,
    handoff_id: str,
    worker: str = "w1",
    first: WorstCase | None = None,
) -> HandoffClaim:
    return store.claims.claim(
        ClaimRequest(
            job_id, HandoffId(handoff_id), compute_digest(text_of(handoff_id)), worker, first
        )
    )


def granted_claim(store: Store, job_id: JobId, handoff_id: str, worker: str = "w1") -> HandoffClaim:
    claimed = claim(store, job_id, handoff_id, worker)
    assert claimed.verdict is ClaimVerdict.GRANTED
    return claimed


def stored_fence(claimed: HandoffClaim) -> bytes:
    """Return the form in which Redis keeps the fence of a claim."""
    return sha1(claimed.fence.encode()).hexdigest().encode()


def expire_lease(store: Store, claimed: HandoffClaim) -> None:
    """Make the lease of this claim expire, as if its worker were dead."""
    expire_lease_of(store, claimed.job_id, claimed.handoff_id)


def expire_lease_of(store: Store, job_id: JobId, handoff_id: HandoffId) -> None:
    """Set the end of the handoff's lease to one second ago."""
    # The clocks of Redis and this process may differ by milliseconds on a busy machine.
    past_ms = int(store.connection.now() * 1000) - 1_000
    store.connection.redis.hset(handoff_key(store, job_id, handoff_id), "lease", past_ms)
    name = due_key(store, job_id, handoff_id)
    store.connection.redis.zadd(name, {f"{job_id}/{handoff_id}": past_ms})


def due_key(store: Store, job_id: JobId, handoff_id: HandoffId) -> str:
    """Return the set with the due time of a specialist's handoff."""
    return keys.due(_role_of(store, job_id, handoff_id))


def due_at(store: Store, member: str) -> float:
    """Return the earliest due time of a job or a handoff, in Unix seconds; infinite: none."""
    redis, times = store.connection.redis, list[float]()
    for name in redis.scan_iter(match=f"{keys.DUE}*"):
        if (score := redis.zscore(name, member)) is not None:
            times.append(float(score) / 1000)
    return min(times, default=math.inf)


def result_of(claimed: HandoffClaim, output: str = "An answer.") -> HandoffResult:
    step, _, attempt = claimed.handoff_id.partition(".")
    return HandoffResult(
        handoff_id=claimed.handoff_id,
        job_id=claimed.job_id,
        step_id=StepId(step),
        attempt=int(attempt),
        status=ResultStatus.OK,
        output=output,
    )


def finished_event(result: HandoffResult) -> HandoffFinished:
    return HandoffFinished(
        handoff_id=result.handoff_id,
        status=result.status,
        result=make_ref(result.to_json()),
        usage=result.usage,
        turns=result.turns,
        stop_reason=result.stop_reason,
        confidence=result.confidence,
    )


def finish_with(claimed: HandoffClaim, result: HandoffResult, *more: Event) -> FinishReply:
    """Finish the handoff with this result and these events."""
    return claimed.finish(claimed.build_finish_request(result, (finished_event(result), *more)))


def finish(claimed: HandoffClaim, output: str = "An answer.", *more: Event) -> int | None:
    """Finish the handoff. Return the number of open parts in its group, or None if the claim was
    lost.
    """
    result = result_of(claimed, output)
    try:
        return finish_with(claimed, result, *more).parts_left
    except Interrupted:
        return None


def model_reply(
    input_tokens: int = 100,
    output_tokens: int = 20,
    microusd: int | None = 5,
    stop_reason: str = "tool_use",
) -> ModelReplied:
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_microusd=microusd)
    return ModelReplied(
        content=({"type": "text", "text": "Hm."},),
        stop_reason=stop_reason,
        usage=usage,
        model="some-model",
    )


def accounts(store: Store, job_id: JobId) -> dict[str, int]:
    """Return the amounts that the job has spent and reserved."""
    fields = store.connection.redis.hgetall(keys.progress(job_id))
    names = (*SPENT_FIELDS, *(measure.reserved for measure in MEASURES))
    return {name: int(fields.get(name.encode(), 0)) for name in names}


def nothing_reserved(store: Store, job_id: JobId) -> bool:
    return all(
        value == 0 for name, value in accounts(store, job_id).items() if name.startswith("reserved")
    )


def redis_dump(store: Store) -> dict[bytes, bytes]:
    """Return a dump of every key in Redis. Two equal dumps show that nothing was written."""
    return {name: store.connection.redis.dump(name) for name in store.connection.redis.scan_iter()}


def reservation_verdict(claimed: HandoffClaim, worst: WorstCase) -> bytes:
    """Reserve a call, and return the verdict: `ok`, `wait` or the name of a limit."""
    return reservation_answer(claimed, worst)[-1]


def reservation_answer(claimed: HandoffClaim, worst: WorstCase) -> list[bytes]:
    """Return the full answer to a reservation. A refusal includes the level of the limit."""
    answer: list[bytes] = claimed._run_turn_script(worst=worst)
    return answer
