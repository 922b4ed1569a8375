"""A model whose calls the CLI of the Claude Agent SDK asks for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from handoff_queue.shared.types.errors import ModelRejected, NeverSent
from handoff_queue.shared.types.model import (
    MIN_PROGRESS_INTERVAL_S,
    CallProgress,
    Model,
    ModelCall,
    ModelReply,
)
from handoff_queue.workers.agent_sdk.cli_session import Session
from handoff_queue.workers.agent_sdk.conversation import (
    added_bytes,
    turns_of,
    with_cli_texts,
)
from handoff_queue.workers.agent_sdk.messages_api import CliRequest

MAX_ADDED_BYTES = 8_000
"""Bytes that the CLI may add to the texts of one request. Version 0.2.189 adds about 1,500. The
upper bound of a call contains them until a reply has reported its tokens.
"""


@dataclass(slots=True)
class AgentSdkModel:
    """Makes the calls that the CLI asks for, through another model.

    The first call starts the CLI. `reply` replays the stored replies of the conversation to it. So
    it continues after a kill, and no reply is paid again.
    """

    model: Model
    added_bytes: int = MAX_ADDED_BYTES
    _session: Session | None = field(default=None, init=False)

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        """Wait until the CLI asks for the next call, and make the call.

        Raises:
            NeverSent: the CLI has ended, or does not ask in time. Nothing was paid.
            ModelError: raised by the model. The request of the CLI still waits.
        """
        request = self._next_request(call, on_progress)
        sent_call = with_cli_texts(call, request.body)
        if added_bytes(call, sent_call) > self.added_bytes:
            raise ModelRejected(
                f"the CLI of the Claude Agent SDK adds more than {self.added_bytes:,} bytes to"
                " a request: remove `runner`, or install the pinned version"
            )
        return self.model.reply(sent_call, on_progress)

    def close(self) -> None:
        """End the CLI, if it runs."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _next_request(
        self, call: ModelCall, on_progress: Callable[[CallProgress], None]
    ) -> CliRequest:
        """Replay the replies that the CLI has not got, and return its next request."""
        turns = turns_of(call.messages)
        if self._session is not None and self._session.served > len(turns):
            self.close()
        if self._session is None:
            self._session = Session(call)
        session = self._session
        for turn in turns[session.served :]:
            session.serve(self._request_of(session, call, on_progress), turn, call.model)
        return self._request_of(session, call, on_progress)

    def _request_of(
        self, session: Session, call: ModelCall, on_progress: Callable[[CallProgress], None]
    ) -> CliRequest:
        """Wait for a request of the CLI, with reports."""
        until = time.monotonic() + call.timeout_s
        while (request := session.next_request(MIN_PROGRESS_INTERVAL_S)) is None:
            on_progress(CallProgress())
            if session.failure is not None or time.monotonic() > until:
                self.close()
                why = session.failure or f"no request within {call.timeout_s:g} s"
                raise NeverSent(f"the CLI of the Claude Agent SDK does not go on: {why}")
        return request
