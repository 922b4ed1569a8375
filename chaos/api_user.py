"""A user of the HTTP API of `handoff serve`, and followers of events.

There are several servers, and each is killed while it works. Each request goes to the next server,
as a load balancer sends it. The user sends a request again until an answer comes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx2

from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request

ACTOR = "chaos"
"""Name of the user's token."""
ANSWERS_WITHIN_S = 3.0
"""Seconds after which the user sends a request again."""
SILENT_S = 20.0
"""Seconds of silence after which a follower connects again: more than a heartbeat."""
RECONNECT_S = 0.1
"""Seconds between two connections of a follower."""
NO_ANSWER = (429, 503)
"""Statuses that ask the user to send the request again."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of the server."""

    status: int
    content: Mapping[str, Any]

    @property
    def detail(self) -> str:
        """The words of an error."""
        return str(self.content.get("detail", ""))


@dataclass(slots=True)
class ApiUser:
    """A user with a token. One thread sends requests; followers have their own threads."""

    urls: Sequence[str]
    """Addresses of the servers."""
    secret: str
    requests: int = 0
    unanswered: int = 0
    taken_over: int = 0
    """Requests to which one server gave no answer, and then another server answered."""
    answered: set[str] = field(default_factory=set)
    """Addresses of the servers that have answered."""
    failures: list[str] = field(default_factory=list)
    """Answers with an internal error."""
    _open: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Request without an answer: method, path and key -> the server that gave none."""
    _http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {self.secret}"},
            timeout=ANSWERS_WITHIN_S,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
            verify=False,
        )

    def send(
        self, method: str, path: str, body: object = None, *, key: str = ""
    ) -> HttpAnswer | None:
        """Send a request. Return None if no answer came: the request may have had its effect, so
        the caller must send it again.

        Args:
            key: the Idempotency-Key.
        """
        server = self.urls[self.requests % len(self.urls)]
        self.requests += 1
        headers = {"Idempotency-Key": key} if key else {}
        try:
            response = self._http.request(method, server + path, json=body, headers=headers)
            content = response.json() if response.content else {}
        except (httpx2.HTTPError, ValueError):
            self._record_silence(method, path, key, server)
            return None
        if response.status_code in NO_ANSWER:
            self._record_silence(method, path, key, server)
            return None
        self.answered.add(server)
        self.taken_over += self._open.pop((method, path, key), server) != server
        if response.status_code >= 500:
            self.failures.append(f"{method} {path}: {response.status_code} {response.text:.200}")
            return None
        return HttpAnswer(response.status_code, content)

    def _record_silence(self, method: str, path: str, key: str, server: str) -> None:
        self.unanswered += 1
        self._open[method, path, key] = server

    def submit(self, request: Request) -> JobId:
        """Submit a job without a workflow and without documents.

        Raises:
            StoreUnavailable: no answer came, so the caller must submit the same job again.
            UserError: the server refuses the job.
        """
        answer = self.send("POST", "/v1/jobs", body_of(request), key=request.idempotency_key or "")
        if answer is None:
            raise StoreUnavailable("the HTTP server did not answer")
        if answer.status != 202:
            raise UserError(answer.detail)
        return JobId(answer.content["job_id"])

    def follow(self, job_id: JobId) -> Follower:
        """Return a running follower of a job."""
        follower = Follower(self._http, self.urls, job_id)
        follower.start()
        return follower

    def close(self) -> None:
        self._http.close()


def body_of(request: Request) -> dict[str, object]:
    """Return the body of a request for a job."""
    body: dict[str, object] = {
        "text": request.text,
        "limits": request.limits.model_dump(mode="json"),
        "model": request.model,
        "tenant": request.tenant,
        "priority": request.priority,
        "deadline_s": request.deadline_s,
        "mode": request.mode,
        "after": request.after,
    }
    for name, part in (("approvals", request.approvals), ("gates", request.gates)):
        if part is not None:
            body[name] = part.model_dump(mode="json", exclude_defaults=True)
    return body


class Follower(threading.Thread):
    """Follows the events of one job across reconnections, as a browser does. Each connection is to
    the next server.
    """

    def __init__(self, http: httpx2.Client, urls: Sequence[str], job_id: JobId) -> None:
        super().__init__(name=f"follower of {job_id}", daemon=True)
        self.seen: list[tuple[int, str]] = []
        """Version and JSON of each event, in the order of arrival."""
        self.streams = 0
        """Number of streams that the server began."""
        self._http = http
        self._servers = cycle(urls)
        self._path = f"/v1/jobs/{job_id}/events"
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            with suppress(httpx2.HTTPError, RuntimeError):  # the user has closed its connections
                self._connect()
            self._is_over.wait(RECONNECT_S)

    def stop(self, within_s: float) -> None:
        """Wait for the last event, for at most this time. Then end the follower."""
        self.join(within_s)
        self._is_over.set()

    def _connect(self) -> None:
        last = self.seen[-1][0] if self.seen else 0
        headers = {"Last-Event-ID": str(last)}
        url = next(self._servers) + self._path
        with self._http.stream("GET", url, headers=headers, timeout=SILENT_S) as response:
            if response.status_code == 204:  # the job has ended, and there are no further events
                self._is_over.set()
            if response.status_code == 200:
                self.streams += 1
                self._read(response)

    def _read(self, response: httpx2.Response) -> None:
        """Record the events of a stream. An event counts when its last line has come."""
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            if self._is_over.is_set():
                return
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "id" in fields:
                self.seen.append((int(fields["id"]), fields["data"]))
                fields = {}
            else:
                fields = {}
