"""What a job has asked of a person, and what was said, for those who look at the job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.events import ApprovalAsked, Approved, Recorded, Rejected


def answers_in(events: Sequence[Recorded]) -> dict[int, Approved | Rejected]:
    """What was said to each question: the first answer counts."""
    found: dict[int, Approved | Rejected] = {}
    for recorded in events:
        if isinstance(recorded.event, Approved | Rejected):
            found.setdefault(recorded.event.asked, recorded.event)
    return found


def approvals_in(
    events: Sequence[Recorded], payloads: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """In the form of `JobResult.approvals`."""
    answered, found = answers_in(events), []
    for recorded in events:
        if not isinstance(asked := recorded.event, ApprovalAsked):
            continue
        said = answered.get(recorded.version)
        draft = Answer.from_json(payloads[asked.draft.digest]) if asked.draft else None
        own_plan = (
            said.own_plan
            if isinstance(said, Rejected)
            else said.plan.plan
            if said and said.plan
            else None
        )
        found.append(
            {
                "version": recorded.version,
                "what": asked.what.value,
                "why": asked.why,
                "asked_at": recorded.at,
                "decision": said.type if said else None,
                "by": said.by if isinstance(said, Approved) else "user" if said else None,
                "note": payloads[said.note.digest] if said and said.note else None,
                "draft": None
                if draft is None
                else draft.text
                if draft.value is None
                else draft.value,
                "own_plan": json.loads(payloads[own_plan.digest]) if own_plan else None,
            }
        )
    return tuple(found)
