"""One handoff of a job in full, however many others it has: nothing of the journal is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import HANDOFF_ID_PATTERN, HandoffId, JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.results import result_values
from handoff_queue.supervisor.client.job_lookup import known
from handoff_queue.supervisor.client.report import told

MOST_ID_CHARS = 80


class HandoffReport(Message):
    """What `handoff show --handoff` says of each."""

    handoff: dict[str, Any]
    """The AgentHandoff in full with its books, as in `JobResult.handoffs`."""
    result: dict[str, Any] | None = None
    """The HandoffResult in full; null: there is none yet."""
    turns: tuple[dict[str, Any], ...] = ()
    """The stored turns: of a handoff that runs, or with the setting that keeps turns."""


def handoffs_on(
    ledger: Ledger, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> list[HandoffReport]:
    """Return the reports in the order of the ids, in three round trips.

    Raises:
        UnknownJob: there is no such job.
        UserError: it has none of that name.
        LedgerError: its payloads are gone.
    """
    wanted = list(dict.fromkeys(handoff_ids))
    books = ledger.glances.handoffs(
        job_id, [one for one in wanted if re.fullmatch(HANDOFF_ID_PATTERN, one)]
    )
    if unknown := [one[:MOST_ID_CHARS] for one in wanted if one not in books]:
        known(ledger, job_id)
        which = ", ".join(map(repr, unknown))
        raise UserError(
            f"{job_id} has no handoff {which}: an id looks like `check_0107.1`, and `handoff show {job_id}` names some"
        )
    messages = [one.message for one in books.values()]
    results = [one.result for one in books.values() if one.result]
    texts, turns = (
        ledger.blobs.get(job_id, messages, results=results),
        ledger.claims.turns(job_id, wanted),
    )
    return [
        HandoffReport(
            handoff=told(
                texts[books[one].message], books[one].group, books[one].child, books[one].standing
            ),
            result=result_values(texts[result]) if (result := books[one].result) else None,
            turns=tuple(turn.model_dump(mode="json") for turn in turns.get(one, ())),
        )
        for one in wanted
    ]
