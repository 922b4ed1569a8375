"""A model whose calls the CLI of the Claude Agent SDK asks for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from handoff_queue.shared.observability.logs import get_log
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
    count_added_bytes,
    list_turns,
    with_cli_texts,
)
from handoff_queue.workers.agent_sdk.messages_api import CliRequest

MAX_ADDED_BYTES = 8_000
"""Bytes that the CLI may add to the texts of one request. Version 0.2.189 adds about 1,500. The
upper bound of a call contains them until a reply has reported its tokens.
"""

MAX_RESTARTS = 3
"""Starts of a new CLI after the end of another one, for each claim of a handoff. A CLI that ends
each time is broken, and each start takes seconds.
"""
log = get_log(__name__)


class _CliDied(Exception):
    """The CLI has ended before it asked for the next call."""


@dataclass(slots=True)
class AgentSdkModel:
    """Makes the calls that the CLI asks for, through another model.

    The first call starts the CLI. `reply` replays the stored replies of the conversation to it. So
    it continues after a kill, and no reply is paid again. A CLI that dies between two calls is
    started again in the same way, which takes no turn.
    """

    model: Model
    added_bytes: int = MAX_ADDED_BYTES
    _session: Session | None = field(default=None, init=False)
    _restarts: int = field(default=0, init=False)

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        """Wait until the CLI asks for the next call, and make the call.

        Raises:
            NeverSent: the CLI has ended too often, or does not ask in time. Nothing was paid.
            ModelError: raised by the model. The request of the CLI still waits.
        """
        request = self._next_request(call, on_progress)
        sent_call = with_cli_texts(call, request.body)
        if count_added_bytes(call, sent_call) > self.added_bytes:
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
        """Return the next request of the CLI. Start the CLI again if it has died."""
        while True:
            try:
                return self._replay(call, on_progress)
            except _CliDied as died:
                if self._restarts == MAX_RESTARTS:
                    raise _build_stall_error(str(died)) from None
                self._restarts += 1
                log.warning("the CLI of the Claude Agent SDK is started again", why=str(died))

    def _replay(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> CliRequest:
        """Replay the replies that the CLI has not got, and return its next request."""
        turns = list_turns(call.messages)
        if self._session is not None and self._session.served > len(turns):
            self.close()
        if self._session is None:
            self._session = Session(call)
        session = self._session
        for turn in turns[session.served :]:
            session.serve(self._wait_for_request(session, call, on_progress), turn, call.model)
        return self._wait_for_request(session, call, on_progress)

    def _wait_for_request(
        self, session: Session, call: ModelCall, on_progress: Callable[[CallProgress], None]
    ) -> CliRequest:
        """Wait for a request of the CLI, with reports.

        Raises:
            _CliDied: the CLI has ended.
            NeverSent: the CLI does not ask in time.
        """
        until = time.monotonic() + call.timeout_s
        while (request := session.next_request(MIN_PROGRESS_INTERVAL_S)) is None:
            on_progress(CallProgress())
            if session.failure is not None:
                self.close()
                raise _CliDied(session.failure)
            if time.monotonic() > until:
                self.close()
                raise _build_stall_error(f"no request within {call.timeout_s:g} s")
        return request


def _build_stall_error(why: str) -> NeverSent:
    return NeverSent(f"the CLI of the Claude Agent SDK does not go on: {why}")
