"""Runs the tool calls of a reply. Decides which calls may run, writes the note before a call that
must run at most once, and makes the results for the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

from handoff_queue.shared.agent.checkpointed_conversation import CheckpointedConversation
from handoff_queue.shared.agent.conversation import find_calls, is_same_call
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_call_approval import CheckedCalls, check_calls
from handoff_queue.shared.agent.tool_call_ids import list_ids
from handoff_queue.shared.agent.tool_calls import (
    MAX_CALLS,
    NO_RESULT_TEXTS,
    UNKNOWN_TOOL,
    ToolThreads,
    find_argument_problem,
    observe_no_result,
)
from handoff_queue.shared.agent.tool_policy import CallDecision, CallGuard, CallVerdict
from handoff_queue.shared.agent.tool_result_clearing import find_cleared_result
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.text.unicode_text import remove_invisible
from handoff_queue.shared.types.checkpoints import (
    ModelReplied,
    NoResult,
    ToolCallStarted,
    ToolObserved,
)
from handoff_queue.shared.types.errors import (
    LimitReached,
)
from handoff_queue.shared.types.handoff import AgentHandoff, StopReason
from handoff_queue.shared.types.model import CUT_OFF, Block

MIN_SAME_CHARS = 200
"""Characters of the shortest result that is not shown a second time."""
_log = get_log(__name__)


class ToolCallRunner:
    """Runs the tool calls of one attempt at a handoff."""

    def __init__(
        self,
        handoff: AgentHandoff,
        tools: dict[str, Tool],
        guard: CallGuard,
        transcript: CheckpointedConversation,
    ) -> None:
        """Run the calls of the replies in the transcript.

        Args:
            tools: all tools of the agent, by name.
        """
        self._handoff = handoff
        self._tools = tools
        self._guard = guard
        self._transcript = transcript

    def run(self, reply: ModelReplied) -> None:
        """Run the calls that have no result yet, except calls that must not run. Calls that need
        an approval are asked about after the others have run.

        Raises:
            ApprovalAwaited: the handoff waits for a person.
            Interrupted: this process has lost the claim.
            LimitReached: the time is over.
        """
        approval_s = self._handoff.call_approval_s
        checkpoints = self._transcript.dependencies.checkpoints
        runnable, refused_results = self._split_runnable_calls(reply)
        checked = check_calls(
            runnable,
            self._tools,
            self._decide,
            checkpoints.read_call_answers,
            asks=approval_s is not None,
        )
        refused_results += map(self._shorten_repeated_refusal, checked.refused_results)
        if refused_results:
            self._transcript.store(*refused_results)
        self._run_allowed(checked)
        if checked.questions and approval_s is not None:
            self._send_heartbeat("asking for an approval")
            checkpoints.ask_about_calls(checked.questions, approval_s)

    def _split_runnable_calls(self, reply: ModelReplied) -> tuple[list[Block], list[ToolObserved]]:
        """Return the calls of a reply that may run, and the results of the others that have no
        result yet.
        """
        runnable: list[Block] = []
        results: list[ToolObserved] = []
        first_ids = list_ids(find_calls(reply)[:MAX_CALLS])
        for call in self._transcript.conversation.unanswered:
            refusal = self._find_refusal(call, reply, first_ids)
            if refusal is not None:
                result = observe_no_result(call, refusal)
                if refusal is NoResult.MAY_HAVE_RUN:
                    result = self._shorten_repeated_refusal(result)
                results.append(result)
                continue
            known_result = self._find_stored_result(call, runnable)
            if known_result is not None:
                results.append(known_result)
            else:
                runnable.append(call)
        return runnable, results

    def _shorten_repeated_refusal(self, result: ToolObserved) -> ToolObserved:
        """Return the result of a call that may not run. If an equal call had the same result
        before, return one line that counts as a repetition.
        """
        call = self._find_call(result)
        if self._transcript.conversation.is_text_visible_for_equal_call(call, result.text):
            return observe_no_result(call, NoResult.SAME_CALL)
        return result

    def _find_refusal(
        self, call: Block, reply: ModelReplied, first_ids: Collection[str]
    ) -> NoResult | None:
        """Return why a call must not run; None if it may run.

        Args:
            first_ids: ids of the first `MAX_CALLS` calls of the reply.
        """
        conversation = self._transcript.conversation
        if conversation.turns >= self._handoff.limits.max_turns:
            return NoResult.NO_TURNS_LEFT
        if reply.stop_reason in CUT_OFF and call is reply.content[-1]:
            return NoResult.CUT_CALL
        if call["id"] in conversation.started_ids or conversation.may_have_run(call):
            return NoResult.MAY_HAVE_RUN
        if call["id"] not in first_ids:
            return NoResult.TOO_MANY_CALLS
        return None

    def _find_stored_result(self, call: Block, before: Sequence[Block]) -> ToolObserved | None:
        """Return the result of a call that need not run. None: the call must run.

        Such a call is a repeated look-up, a repeated call that cannot run, or `read_result` for a
        cleared result.

        Args:
            before: calls of the same reply that will run.
        """
        tool = self._tools.get(str(call.get("name")))
        cleared_result = find_cleared_result(self._transcript.conversation, call, tool)
        runnable_tool = tool
        if tool is not None and find_argument_problem(call.get("input"), tool) is not None:
            runnable_tool = None
        if runnable_tool is not None:
            if not runnable_tool.is_lookup:
                return cleared_result
            if any(is_same_call(earlier, call) for earlier in before):
                return observe_no_result(call, NoResult.SAME_CALL)
        if self._shows_answer_to(call, runnable_tool, cleared_result):
            return observe_no_result(call, NoResult.SAME_CALL)
        return cleared_result

    def _shows_answer_to(
        self, call: Block, runnable_tool: Tool | None, cleared_result: ToolObserved | None
    ) -> bool:
        """Return whether requests show a result that a call would only repeat. An error counts if
        the call would fail again: it cannot run, or its tool sends nothing.

        Args:
            runnable_tool: the look-up tool; None: the call cannot run.
            cleared_result: the cleared result of an equal call. If it is not an error, errors do
                not count: the call failed before the result was cleared.
        """
        fails_again = runnable_tool is None or not runnable_tool.sends
        has_cleared_result = cleared_result is not None and not cleared_result.is_error
        return self._transcript.conversation.has_visible_result_of_equal_call(
            call, counts_errors=fails_again and not has_cleared_result
        )

    def _run_allowed(self, checked: CheckedCalls) -> None:
        """Run the calls that the policy or a person has allowed, and store their results."""
        doing = ", ".join(self._build_tool_labels(checked.allowed_calls))
        if checked.allowed_calls:
            self._send_heartbeat(doing)
        threads = ToolThreads(self._tools, self._transcript.dependencies.build_tool_context())
        results = threads.run_calls(
            checked.allowed_calls, lambda: self._send_heartbeat(doing), self._store_start
        )
        # An error of the store abandons the running threads now, not when the error is freed.
        with closing(results):
            for result in results:
                self._store_result(checked.with_note(result))

    def _store_result(self, result: ToolObserved) -> None:
        """Store the result of a call, as the model may see it."""
        conversation = self._transcript.conversation
        call = self._find_call(result)
        tool = self._tools.get(str(call.get("name")))
        no_result = result.no_result
        text = self._transcript.dependencies.without_secrets(remove_invisible(result.text))
        if tool is not None and tool.is_lookup:
            is_shown = len(text) >= MIN_SAME_CHARS and conversation.is_text_visible(text)
            fails_again = result.is_error and text in conversation.find_errors_of_equal_calls(call)
            if is_shown or fails_again:
                no_result = NoResult.SAME_RESULT
                text = NO_RESULT_TEXTS[no_result]
        fields = {"text": text, "no_result": no_result}
        visible_result = conversation.with_room_for(result.model_copy(update=fields))
        self._transcript.store(self._make_citable(visible_result, tool))

    def _decide(self, tool: Tool, arguments: Mapping[str, Any]) -> CallDecision:
        """Return the decision of the policy on a call."""
        decision = self._guard.decide(tool, dict(arguments), self._transcript.conversation)
        if decision.verdict is not CallVerdict.ALLOW:
            _log.info(
                "the policy does not allow a call", tool=tool.name, verdict=decision.verdict.value
            )
        return decision

    def _build_tool_labels(self, calls: Sequence[Block]) -> list[str]:
        """Return the names of the called tools, each once. Names that the model has invented
        become `UNKNOWN_TOOL`.
        """
        labels: list[str] = []
        for call in calls:
            label = str(call.get("name"))
            if label not in self._tools:
                label = UNKNOWN_TOOL
            if label not in labels:
                labels.append(label)
        return labels

    def _find_call(self, result: ToolObserved) -> Block:
        """Return the call of this turn that a result belongs to."""
        for call in self._transcript.conversation.unanswered:
            if call["id"] == result.tool_use_id:
                return call
        return {}

    def _make_citable(self, result: ToolObserved, tool: Tool | None) -> ToolObserved:
        """Return the result of a call. If an answer may cite the result, add its source's name."""
        if tool is None or not tool.is_source or result.is_error or not result.text.strip():
            return result
        source = self._transcript.conversation.find_source(result.tool_use_id, self._handoff)
        return result.model_copy(update={"source": source})

    def _store_start(self, call: Block) -> None:
        """Store a checkpoint before a call of a tool that is not safe to repeat. After a kill, the
        call gets the line of `NoResult.MAY_HAVE_RUN`: it runs at most once.
        """
        tool = self._tools.get(str(call.get("name")))
        if tool is not None and not tool.repeatable:
            self._transcript.store(ToolCallStarted(tool_use_id=call["id"]))

    def _send_heartbeat(self, doing: str) -> None:
        """Send a heartbeat, and check the claim and the remaining time, while tools run.

        Raises:
            Interrupted: this process has lost the claim.
            LimitReached: the time is over.
        """
        self._transcript.dependencies.checkpoints.heartbeat(doing)
        if self._transcript.dependencies.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, f"while running {doing}")
