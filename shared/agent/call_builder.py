"""Builds the model call of a turn: its request, its tools and its token bounds. No call is made
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prices import count_request_bytes
from handoff_queue.shared.agent.prompt_cache_prefixes import Prefix, compute_prefix
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.summary_messages import SUMMARIZE, has_text_output
from handoff_queue.shared.agent.token_estimates import estimate_input_tokens, estimate_max_input
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_calls import build_definition
from handoff_queue.shared.agent.tool_result_clearing import READ_CLEARED, choose_provider_clearing
from handoff_queue.shared.types.context_edits import NO_EDITS, ContextEdit
from handoff_queue.shared.types.errors import LimitReached
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import ModelCall, SystemPrompt

MIN_OUTPUT_TOKENS = 256
"""Least output tokens of a call. A shorter reply is not worth its input."""


class CallBuilder:
    """Builds the model calls of one handoff. The claim is part of `dependencies`."""

    def __init__(
        self,
        limits: HandoffLimits,
        system: SystemPrompt,
        tools: tuple[Tool, ...],
        dependencies: RunDependencies,
        is_offered: Callable[[Tool, Conversation], bool],
    ) -> None:
        """Keep what all calls share.

        Args:
            is_offered: returns whether the model may know of a tool after a conversation.
        """
        self._limits = limits
        self.system = system
        self._tools = tuple((tool, build_definition(tool)) for tool in tools)
        self._is_offered = is_offered
        schema = dependencies.answer_format.schema
        self.schema = None if schema is None else dict(schema)
        """JSON Schema of the answer; None: the answer is Markdown."""
        self.dependencies = dependencies
        self._has_server_tools = True
        """False if the budget does not allow the searches of the provider."""
        self._rendered_length = -1
        """Number of checkpoints of the conversation that `_rendered_size` is about."""
        self._rendered_size = 0
        """Bytes of the request of that conversation."""
        self._call_of: tuple[object, ...] = ()
        self._call: ModelCall | None = None
        """The last call, and the facts that it depends on."""
        self.prefix = Prefix("", is_worth_a_wait=False)
        """Prefix of the last call."""

    def drop_server_tools(self) -> bool:
        """Leave the searches of the provider out of all further calls, because the budget is too
        small for them. Return False if there are none, or if they are left out already.
        """
        has_searches = any(tool.server_param for tool, _ in self._tools)
        if not has_searches or not self._has_server_tools:
            return False
        self._has_server_tools = False
        self._rendered_length = -1
        return True

    def call(
        self,
        conversation: Conversation,
        choice: ModelChoice,
        *,
        is_last: bool,
        is_batched: bool = False,
    ) -> ModelCall:
        """Return the next call to a model, without its `timeout_s`. It is kept until the
        conversation grows, because it is reserved before it is made. Only the time for which it is
        cached is computed again, because it depends on the time and on other calls.

        Args:
            is_last: True if the reply must be the answer.
            is_batched: True if the call goes into a batch. The provider edits no such request.

        Raises:
            LimitReached: the tokens of the handoff do not suffice for a reply.
        """
        edits = NO_EDITS if is_batched else self._get_edits(choice)
        length = len(conversation.checkpoints)
        call_of = (length, choice.name, is_last, self._has_server_tools, edits)
        if self._call is None or self._call_of != call_of:
            self._call = self._build_call(conversation, choice, edits, is_last=is_last)
            self._call_of = call_of
        is_prefix_late = self._is_prefix_late()
        # Before the first turn, the gap was between two handoffs: only the prefix comes back.
        is_late_turn = is_prefix_late and conversation.turns > 0
        return replace(
            self._call,
            caches_for_1h=self.dependencies.may_wait_for_person or is_late_turn,
            caches_prefix_for_1h=is_prefix_late,
        )

    def _get_edits(self, choice: ModelChoice) -> frozenset[ContextEdit]:
        """Return the edits of requests that the handoff leaves to the provider."""
        context = self.dependencies.provider_context
        if context is None:
            return NO_EDITS
        return frozenset(context.edits_of(choice.name))

    def _build_call(
        self,
        conversation: Conversation,
        choice: ModelChoice,
        edits: Collection[ContextEdit],
        *,
        is_last: bool,
    ) -> ModelCall:
        """Build a call. The other arguments and the error are those of `call`.

        Args:
            edits: edits that the provider makes.
        """
        room = self.count_tokens_left(conversation) - self.estimate_input_tokens(conversation)
        if room < MIN_OUTPUT_TOKENS:
            raise LimitReached(
                StopReason.MAX_TOKENS,
                f"{conversation.replied_tokens} of {self._limits.max_tokens} tokens are used",
            )
        tools, may_call_tools = self._choose_tools(conversation, is_last=is_last)
        compacts = ContextEdit.COMPACTION in edits
        visible_conversation = conversation
        output_schema = self.choose_output_schema(conversation)
        compaction = clearing = None
        # If the provider wrote no summary, the model is asked for one.
        if compacts and conversation.is_summarizing and conversation.summary_requests < 2:
            compaction = SUMMARIZE
            visible_conversation = conversation.without_summary_request
            output_schema = None
        elif tools and ContextEdit.CLEARING in edits:
            clearing = choose_provider_clearing(conversation, self.dependencies.clearing)
        call = ModelCall(
            model=choice.name,
            system=self.system,
            messages=visible_conversation.build_messages_for(choice.name, adopts_block=compacts),
            max_output_tokens=min(self._limits.max_output_tokens, room),
            tools=tools,
            may_call_tools=may_call_tools,
            output_schema=output_schema,
            clearing=clearing,
            compaction=compaction,
            is_summary=conversation.is_summarizing,
            effort=self.dependencies.effort,
            thinking=self.dependencies.thinking,
            progress_s=self.dependencies.progress_s,
        )
        self.prefix = compute_prefix(self.dependencies.agent, call)
        return call

    def build_prefix(
        self, conversation: Conversation, choice: ModelChoice, *, is_last: bool
    ) -> Prefix:
        """Return the prefix of the call that `call` would return."""
        self.call(conversation, choice, is_last=is_last)
        return self.prefix

    def _choose_tools(
        self, conversation: Conversation, *, is_last: bool
    ) -> tuple[tuple[dict[str, object], ...], bool]:
        """Return the definitions of tools in a call, and whether the model may call them. The API
        needs definitions as soon as the conversation has calls.
        """
        tools: tuple[dict[str, object], ...] = ()
        if conversation.ids or not is_last:
            tools = self._select_tool_definitions(conversation)
        if conversation.ids and not tools:
            return tuple(_build_placeholder(name) for name in conversation.called_names), False
        if conversation.is_summarizing:
            return tools, self._may_call_with_summary(conversation, tools)
        return tools, not is_last

    def choose_output_schema(self, conversation: Conversation) -> dict[str, Any] | None:
        """Return the JSON Schema of the next reply. A summary has none, unless it is the output of
        the schema.
        """
        if conversation.is_summarizing and not has_text_output(self.schema):
            return None
        return self.schema

    def _may_call_with_summary(
        self, conversation: Conversation, tools: Sequence[Mapping[str, object]]
    ) -> bool:
        """Return whether a request for a summary leaves the tools allowed. Without tools, the
        provider would read the whole request again, and not from its cache.

        Tools that the provider runs are not allowed, and no tools after a reply without a summary.
        """
        has_server_tools = any("input_schema" not in tool for tool in tools)
        return conversation.summary_requests < 2 and not has_server_tools

    def _is_prefix_late(self) -> bool:
        """Return whether the last call with this prefix was more than five minutes ago. Then the
        next one probably comes as late.
        """
        return self.dependencies.caches.needs_hour(self.prefix.name, self.dependencies.now())

    def count_tokens_left(self, conversation: Conversation) -> int:
        """Return the tokens that the handoff may still use."""
        return self._limits.max_tokens - conversation.replied_tokens

    def estimate_input_tokens(self, conversation: Conversation) -> int:
        """Return the expected input tokens of the next call."""
        return estimate_input_tokens(
            conversation, lambda: self._measure_request_bytes(conversation)
        )

    def estimate_max_input(self, conversation: Conversation) -> int:
        """Return an upper bound of the input tokens of the next call."""
        return estimate_max_input(conversation, lambda: self._measure_request_bytes(conversation))

    def _select_tool_definitions(self, conversation: Conversation) -> tuple[dict[str, object], ...]:
        """Return the definitions of the tools that the model may know of now."""
        definitions: list[dict[str, object]] = []
        has_cleared = bool(conversation.cleared)
        for tool, tool_definition in self._tools:
            is_allowed = self._has_server_tools or tool.server_param is None
            is_replaced = has_cleared and tool.name == READ_CLEARED["name"]
            if is_allowed and not is_replaced and self._is_offered(tool, conversation):
                definitions.append(tool_definition)
        if has_cleared:
            definitions.append(READ_CLEARED)
        return tuple(definitions)

    def _measure_request_bytes(self, conversation: Conversation) -> int:
        """Return the bytes of the next request. The figure is kept until the conversation
        grows, because a request may be large.
        """
        length = len(conversation.checkpoints)
        if self._rendered_length != length:
            call = ModelCall(
                "",
                self.system,
                conversation.messages,
                max_output_tokens=1,
                tools=self._select_tool_definitions(conversation),
                output_schema=self.schema,
            )
            self._rendered_length = length
            self._rendered_size = count_request_bytes(call) + self.dependencies.added_bytes
        return self._rendered_size


def _build_placeholder(name: str) -> dict[str, Any]:
    """Return the definition of a tool that the model has invented. The API refuses a request
    whose messages contain calls and that defines no tools.
    """
    return {
        "name": name,
        "description": "There is no such tool.",
        "input_schema": {"type": "object"},
    }
