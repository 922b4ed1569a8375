"""The Message Batches API of a `MessagesServer`: create, retrieve, list, results and cancel.

A batch ends after `duration_s`, and its requests then get the replies of the script. The server
checks the parameters of a request when the batch ends, as the API does.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from handoff_queue.testing.replies import Json, Reply, convert_to_message, error_reply

PATH = "/v1/messages/batches"
MAX_LISTED = 1_000
"""Batches of one page, as the API allows."""
_USUAL_PAGE = 20
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
BATCH_ID = "x-batch-id"
"""Header that a request in a batch has in addition to the headers of the batch: its id."""
ReplyTo = Callable[[Json, Mapping[str, str]], Reply]
"""Function that returns the reply to one request of a batch, with its headers."""


@dataclass(slots=True)
class Batch:
    """A batch. Times are Unix seconds."""

    batch_id: str
    requests: list[Json]
    headers: Mapping[str, str]
    created_at: float
    ends_at: float
    canceled_at: float | None = None
    ended_at: float | None = None
    results: list[Json] = field(default_factory=list)
    """One result for each request, after the end."""


@dataclass(slots=True)
class Batches:
    """The batches of a server. All attributes may be changed while the server runs."""

    reply_to: ReplyTo
    is_served: bool = True
    """False: the server answers 404, as a server without batches."""
    duration_s: float = 0.0
    """Seconds from the creation of a batch to its end."""
    expires_s: float = 86_400.0
    """Seconds after which a batch ends, and its requests have the result `expired`."""
    keeps_replies: bool = False
    """True: a cancelled batch still ends with replies, because its requests had begun."""
    created: list[Batch] = field(default_factory=list)
    """All batches, oldest first."""
    on_created: Callable[[], None] | None = None
    """Function that the server calls after a batch is created, and before it answers."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def paid(self) -> list[str]:
        """Return the custom ids of all requests that have a reply, oldest first."""
        self.advance()
        ids: list[str] = []
        for batch in self.created:
            for result in batch.results:
                if result["result"]["type"] == "succeeded":
                    ids.append(result["custom_id"])
        return ids

    def answer(
        self, method: str, target: str, body: Json, headers: Mapping[str, str], url: str
    ) -> Reply:
        """Return the response to a request about batches.

        Args:
            target: path and query of the request.
            url: base URL of the server.
        """
        parts = urlsplit(target)
        if not self.is_served:
            return _build_not_found_reply(target)
        self.advance()
        batch_id, _, action = parts.path.removeprefix(PATH).strip("/").partition("/")
        if batch_id:
            return self._answer_about(batch_id, f"{method} {action}", url)
        if method == "POST":
            return self._create(body, headers, url)
        return _build_json_reply(self._build_page(parse_qs(parts.query), url))

    def _answer_about(self, batch_id: str, operation: str, url: str) -> Reply:
        """Return the response to a request about one batch.

        Args:
            operation: method and rest of the path, such as `POST cancel`.
        """
        batch = self._find_batch(batch_id)
        if batch is None or operation not in ("GET ", "GET results", "POST cancel"):
            return _build_not_found_reply(batch_id)
        if operation == "GET results":
            if batch.ended_at is None:
                return _build_not_found_reply(f"results of {batch_id}")
            lines = "".join(json.dumps(result) + "\n" for result in batch.results)
            return Reply(body=lines, headers={"content-type": "application/x-jsonl"})
        if operation == "POST cancel":
            self._cancel(batch)
        return _build_json_reply(_convert_batch(batch, url))

    def advance(self) -> None:
        """End the batches whose time is over."""
        now = time.time()
        with self._lock:
            for batch in self.created:
                if batch.ended_at is None and now >= min(
                    batch.ends_at, self._compute_expiry(batch)
                ):
                    self._end(batch, now)

    def _compute_expiry(self, batch: Batch) -> float:
        return batch.created_at + self.expires_s

    def _create(self, body: Json, headers: Mapping[str, str], url: str) -> Reply:
        requests = body.get("requests")
        if not isinstance(requests, list) or not requests:
            return error_reply(400, "requests: at least one is needed", "invalid_request_error")
        names = [str(request.get("custom_id", "")) for request in requests]
        if not all(_CUSTOM_ID.fullmatch(name) for name in names) or len(set(names)) < len(names):
            return error_reply(
                400,
                "requests: each custom_id must be unique and match ^[a-zA-Z0-9_-]{1,64}$",
                "invalid_request_error",
            )
        now = time.time()
        batch = Batch(
            f"msgbatch_{secrets.token_hex(12)}", requests, dict(headers), now, now + self.duration_s
        )
        batch_json = _convert_batch(batch, url)
        with self._lock:
            self.created.append(batch)
        if self.on_created is not None:
            self.on_created()
        return _build_json_reply(batch_json)

    def _cancel(self, batch: Batch) -> None:
        with self._lock:
            if batch.ended_at is None and batch.canceled_at is None:
                batch.canceled_at = batch.ends_at = time.time()

    def _end(self, batch: Batch, now: float) -> None:
        for request in batch.requests:
            batch.results.append(
                {"custom_id": request["custom_id"], "result": self._build_result(batch, request)}
            )
        batch.ended_at = now

    def _build_result(self, batch: Batch, request: Json) -> Json:
        if batch.canceled_at is not None and not self.keeps_replies:
            return {"type": "canceled"}
        if batch.canceled_at is None and self._compute_expiry(batch) < batch.ends_at:
            return {"type": "expired"}
        reply = self.reply_to(request["params"], {**batch.headers, BATCH_ID: batch.batch_id})
        if reply.on_sent is not None:
            reply.on_sent(True)
        if reply.body is not None:
            return {"type": "errored", "error": json.loads(reply.body)}
        return {"type": "succeeded", "message": convert_to_message(reply)}

    def _find_batch(self, batch_id: str) -> Batch | None:
        for batch in self.created:
            if batch.batch_id == batch_id:
                return batch
        return None

    def _build_page(self, query: dict[str, list[str]], url: str) -> Json:
        """Return a page of the list, the newest batch first."""
        newest_first = list(reversed(self.created))
        ids = [batch.batch_id for batch in newest_first]
        first = 0
        if "after_id" in query:
            first = ids.index(query["after_id"][0]) + 1
        limit = min(MAX_LISTED, int(query.get("limit", [str(_USUAL_PAGE)])[0]))
        page = newest_first[first : first + limit]
        return {
            "data": [_convert_batch(batch, url) for batch in page],
            "has_more": first + limit < len(newest_first),
            "first_id": page[0].batch_id if page else None,
            "last_id": page[-1].batch_id if page else None,
        }


def _build_not_found_reply(subject: str) -> Reply:
    return error_reply(404, f"Not found: {subject}", "not_found_error")


def _build_json_reply(value: Json) -> Reply:
    return Reply(body=json.dumps(value))


def _convert_batch(batch: Batch, url: str) -> Json:
    """Return a batch in the form of the API. Its counts stay at `processing` until its end."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    for result in batch.results:
        counts[result["result"]["type"]] += 1
    counts["processing"] = len(batch.requests) - len(batch.results)
    if batch.ended_at is not None:
        status = "ended"
    elif batch.canceled_at is not None:
        status = "canceling"
    else:
        status = "in_progress"
    results_url = None
    if batch.ended_at is not None:
        results_url = f"{url}{PATH}/{batch.batch_id}/results"
    return {
        "id": batch.batch_id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _format_time(batch.created_at),
        "expires_at": _format_time(batch.created_at + 86_400),
        "ended_at": _format_time(batch.ended_at),
        "cancel_initiated_at": _format_time(batch.canceled_at),
        "archived_at": None,
        "results_url": results_url,
    }


def _format_time(unix_s: float | None) -> str | None:
    if unix_s is None:
        return None
    return datetime.fromtimestamp(unix_s, UTC).isoformat()
