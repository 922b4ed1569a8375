"""The `Model` over the official SDK. It streams each reply. It makes a call again only if the
server has refused an option, which costs nothing. The caller can cut a call at any time.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress

import anthropic

from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.providers.anthropic.batches_api import AnthropicBatches
from handoff_queue.shared.providers.anthropic.event_loop import EventLoop
from handoff_queue.shared.providers.anthropic.request import Option, build_request
from handoff_queue.shared.providers.anthropic.streamed_call import Client, StreamedCall
from handoff_queue.shared.providers.model_facts import ModelServer, NoAnswer
from handoff_queue.shared.types.batches import ProviderBatches
from handoff_queue.shared.types.context_edits import (
    COMPACTION_BETA,
    NO_EDITS,
    ContextEdit,
    read_edits,
)
from handoff_queue.shared.types.errors import ContextEditRejected, ModelRejected
from handoff_queue.shared.types.model import (
    CallProgress,
    ModelCall,
    ModelReply,
    compute_progress_interval_s,
)
from handoff_queue.shared.types.origins import CODE_EXECUTION

_log = get_log(__name__)
CLOSE_WITHIN_S = 5.0
"""Seconds that the end of a process waits until the client has closed its connections."""
READ_LOOP = EventLoop("model-calls")
"""The loop that reads all replies of this process."""
_WORDS = {
    Option.CLEARING: ("context_management", "context-management", "clear_tool_uses"),
    Option.COMPACTION: ("compaction", "compact-"),
    Option.EFFORT: ("effort",),
    Option.THINKING: ("thinking",),
    Option.CACHE_1H: ("cache_control",),
    Option.STRICT: ("output_config", "output_format", "strict", "json_schema", "schema"),
}
"""Words in the 400 of a server that refuses an option."""
_ABOUT_MODEL = (403, 404)
"""HTTP status of errors that may be about the model. The error then names it."""
_EDITS = {
    Option.CLEARING: ContextEdit.CLEARING,
    Option.COMPACTION: ContextEdit.COMPACTION,
}

_NEEDS_CODE_EXECUTION = (
    "; `sandbox: provider` needs a model with code execution: name another model, or write"
    " `sandbox: local` (see `handoff doctor`)"
)
"""The remedy if the model lacks the tool of the sandbox."""
AGAIN_AFTER_S = 300.0
"""Seconds from a request without an answer to the next request about the same model."""


class AnthropicModel:
    """A model behind one client. All threads of a process share it, because a client costs
    tens of megabytes, a connection pool and a TLS context.

    One event loop reads all replies, while each caller's thread sends reports. A reader thread
    for each stream would wake up for each word and cost several times as much. It also could
    not interrupt a blocked read.
    """

    def __init__(self, client: Client, server: ModelServer | None = None) -> None:
        """Make the model.

        Args:
            server: names the edits that it offers. None: it offers none.
        """
        self._client = client
        self._refused_options: defaultdict[str, set[Option]] = defaultdict(set)
        """Options that the server refuses, by model."""
        self._offered: OfferedEdits | None = None
        if server is not None:
            self._offered = OfferedEdits(server)
        self._exchanges: set[StreamedCall] = set()
        self._is_open = False

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        """See `shared.types.model.Model`. A call with an option that the server refuses is made
        again without it. It is one turn of the handoff: the refused request costs nothing.
        """
        without = frozenset(self._refused_options[call.model])
        try:
            return self._reply_once(call, without, on_progress)
        except ModelRejected as error:
            option = _find_refused_option(error, call, without)
            if option is None and _lacks_code_execution(error, call):
                raise ModelRejected(f"{error}{_NEEDS_CODE_EXECUTION}", status=400) from error
            if option is None and error.status in _ABOUT_MODEL:
                raise ModelRejected(f"{call.model}: {error}", status=error.status) from error
            if option is None:
                raise
            self._leave_out(option, call.model)
            if option in _EDITS:
                raise ContextEditRejected(
                    f"{error}; trying without {option.value}", status=400, retry_after_s=0
                ) from error
        return self.reply(call, on_progress)

    def _reply_once(
        self,
        call: ModelCall,
        without: Collection[Option],
        on_progress: Callable[[CallProgress], None],
    ) -> ModelReply:
        """Send one request, and return its reply.

        Args:
            without: options that the request leaves out.
        """
        exchange = StreamedCall(call, build_request(call, without=without))
        reading = READ_LOOP.run(exchange.read(self._client))
        self._exchanges.add(exchange)
        self._open()
        try:
            return exchange.wait(
                on_progress, lambda: compute_progress_interval_s(len(self._exchanges))
            )
        finally:
            reading.cancel()
            self._exchanges.discard(exchange)

    def _leave_out(self, option: Option, model: str) -> None:
        """Leave an option out of all further requests to a model, and log this once."""
        if option not in self._refused_options[model]:
            _log.warning(
                "an option that the model lacks was left out", model=model, option=option.value
            )
        self._refused_options[model].add(option)

    def get_context_edits(self, model: str) -> frozenset[ContextEdit]:
        """Return the edits that the provider offers for a model, and has not refused. There are
        none at Bedrock, Vertex, Foundry, and at a server without a Models API.
        """
        if self._offered is None:
            return NO_EDITS
        refused_edits = set(map(_EDITS.get, self._refused_options[model]))
        return self._offered.find(model) - refused_edits

    @property
    def batches(self) -> ProviderBatches | None:
        """Return the batches of the account. None: the provider has none for this client."""
        if type(self._client) is not anthropic.AsyncAnthropic:  # not Bedrock, Vertex and Foundry
            return None
        self._open()
        return AnthropicBatches(self._client, READ_LOOP, lambda name: self._refused_options[name])

    def close(self) -> None:
        """End all waiting calls, and close the connections. A call whose reply has not arrived
        ends with `ModelUnreachable`.
        """
        for exchange in tuple(self._exchanges):
            exchange.give_up()
        if self._is_open:
            self._is_open = False
            atexit.unregister(self.close)
            with suppress(TimeoutError):
                READ_LOOP.run(self._client.close()).result(CLOSE_WITHIN_S)

    def _open(self) -> None:
        """Register `close` for the end of the process, before the end of the event loop."""
        if not self._is_open:
            self._is_open = True
            atexit.register(self.close)


def _find_refused_option(
    error: ModelRejected, call: ModelCall, without: Collection[Option]
) -> Option | None:
    """Return the option of the call that the server has refused, or None for another error.

    Args:
        without: options that the request has left out.
    """
    if error.status != 400:
        return None
    sent_options = {
        Option.CLEARING: call.clearing and call.compaction is None,
        Option.COMPACTION: call.compaction or call.has_signed_summary,
        Option.EFFORT: call.effort,
        Option.THINKING: call.thinking,
        Option.CACHE_1H: call.caches_for_1h or call.caches_prefix_for_1h,
        Option.STRICT: True,
    }
    for option, words in _WORDS.items():
        # A request always has its compaction. The loop makes another request without it.
        is_sent = sent_options[option] and (option is Option.COMPACTION or option not in without)
        if is_sent and any(word in str(error) for word in words):
            return option
    return None


def _lacks_code_execution(error: ModelRejected, call: ModelCall) -> bool:
    """Return whether the server has refused the tool of `sandbox: provider`."""
    has_tool = any(tool.get("name") == CODE_EXECUTION for tool in call.tools)
    return has_tool and error.status == 400 and CODE_EXECUTION in str(error)


class OfferedEdits:
    """The edits that a server offers. The server is asked about each model once, or again after
    `AGAIN_AFTER_S` without an answer. All threads of a process share it.
    """

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._known: dict[str, frozenset[ContextEdit]] = {}
        self._asking = threading.Lock()
        self._failed_at: dict[str, float] = {}
        """Time of the last request without an answer, by model, of the monotonic clock."""

    def find(self, model: str) -> frozenset[ContextEdit]:
        """Return the edits for a model. There are none if the server does not answer, or has no
        Models API, as most gateways.
        """
        if model in self._known:
            return self._known[model]
        with self._asking:  # another thread may ask about this model now
            return self._ask(model)

    def _ask(self, model: str) -> frozenset[ContextEdit]:
        if model in self._known:
            return self._known[model]
        failed_at = self._failed_at.get(model)
        if failed_at is not None and time.monotonic() - failed_at < AGAIN_AFTER_S:
            return NO_EDITS
        try:
            facts = self._server.ask(model, [COMPACTION_BETA])
        except NoAnswer:
            self._failed_at[model] = time.monotonic()
            return NO_EDITS
        self._known[model] = read_edits(facts)
        return self._known[model]
