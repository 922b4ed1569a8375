"""The JSON forms of jobs, specialists, dead letters and events.

The commands print them with `--json`, and the HTTP API returns them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import Event, JobSubmitted
from handoff_queue.shared.types.usage import to_usd

if TYPE_CHECKING:
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.shared.store.presence import ServedSpecialist
    from handoff_queue.shared.types.events import RecordedEvent
    from handoff_queue.shared.types.specialist import SpecialistSpec


def convert_job_info(info: JobInfo) -> dict[str, Any]:
    """Return a job as `handoff list --json` prints it."""
    fields: dict[str, Any] = {}
    for name, value in asdict(info).items():
        if not name.startswith("cut_") and name != "cost_microusd":
            fields[name] = value
    return {**fields, **convert_usage(info), "ended": info.status.has_ended}


def convert_specialist(spec: SpecialistSpec, live: ServedSpecialist | None) -> dict[str, Any]:
    """Return a specialist as `handoff specialists --json` prints it.

    Args:
        live: its live workers. None: leave out the fields about workers.
    """
    fields: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "tools": spec.tools,
        "model": spec.model,
        "max_turns": spec.max_turns,
    }
    if spec.celery_task is not None:
        fields["celery_task"] = spec.celery_task
    if live is None:
        return fields
    paused = None
    if live.paused:
        paused = live.paused.model_dump()
    return fields | {
        "workers": live.workers,
        "slots": live.slots,
        "queued": live.queued,
        "models": live.models,
        "paused": paused,
    }


def convert_letter(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as `handoff dead --json` prints it."""
    return {"id": letter.id, **letter.model_dump()}


HIDDEN_PATH = "(hidden)"
"""The path of a webhook in an event that leaves the server."""


def encode_event(event: Event) -> str:
    """Return the JSON text of an event, without the path of the webhook, which is a secret."""
    if isinstance(event, JobSubmitted) and event.webhook_url is not None:
        parts = urlsplit(event.webhook_url)
        visible_url = f"{parts.scheme}://{parts.hostname}/{HIDDEN_PATH}"
        return event.model_copy(update={"webhook_url": visible_url}).to_json()
    return event.to_json()


def convert_event_record(recorded: RecordedEvent) -> dict[str, Any]:
    """Return an event with its version and its time."""
    event = json.loads(encode_event(recorded.event))
    return {"version": recorded.version, "at": recorded.at, "event": event}


def convert_usage(info: JobInfo | HandoffInfo) -> dict[str, Any]:
    """Return the counted usage of a job or a handoff, in the form of `JobResult.usage`."""
    cut_usd = None
    if info.cost_microusd is not None:
        cut_usd = to_usd(info.cut_microusd)
    return {
        "turns": info.turns,
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "cost_usd": to_usd(info.cost_microusd),
        "cut": {
            "calls": info.cut_calls,
            "tokens": info.cut_tokens,
            "cost_usd": cut_usd,
        },
    }
