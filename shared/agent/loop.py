"""The agent loop of specialists and of the supervisor's roles. It calls the model and runs the
tool calls of each reply, until there is a valid result or a limit is reached.

The loop uses a `Model`, `Tool`s, a `CheckpointStore` and an `AnswerFormat`. It knows neither
Redis nor Celery nor a provider. The checkpoints so far determine the next action, so a resumed
handoff needs no special case: the loop reads the conversation and continues.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    InvalidAnswer,
    looks_cut,
    tool_call_format,
)
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.compaction import MOST_REQUESTS, make_compaction
from handoff_queue.shared.agent.conversation import (
    EMPTY,
    LAST_TURN,
    TOO_LONG,
    UNUSABLE,
    Conversation,
    calls_of,
    ids_in,
    is_same_call,
    text_of,
)
from handoff_queue.shared.agent.handoff_result import ResultBuilder
from handoff_queue.shared.agent.model_turn import ModelTurns
from handoff_queue.shared.agent.prompt import Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_call_approval import CheckedCalls, check_calls
from handoff_queue.shared.agent.tool_calls import (
    CUT_CALL,
    MAY_HAVE_RUN,
    MOST_CALLS,
    NO_TURNS_LEFT,
    NOTHING_DONE,
    SAME_CALL,
    SAME_RESULT,
    TOO_MANY_CALLS,
    UNKNOWN_TOOL,
    ToolThreads,
    observe_result,
)
from handoff_queue.shared.agent.tool_policy import CallDecision, CallVerdict
from handoff_queue.shared.agent.tool_policy_check import CallGuard
from handoff_queue.shared.agent.tool_result_clearing import is_too_long, stored_result
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.text.invisible_characters import visible
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelReplied,
    ToolCallStarted,
    ToolObserved,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    Interrupted,
    Level,
    LimitReached,
    MessagesWaiting,
    ModelError,
    ModelRefused,
    ModelRejected,
    StoreError,
)
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, StopReason
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.names import TAKES_NO_MESSAGES
from handoff_queue.shared.types.rate_limits import ExpectedUsage
from handoff_queue.shared.types.specialist import SpecialistSpec

MOST_REPAIRS = 1
"""Times that a model may fix an invalid answer. A model that fails twice fails again."""
LEAST_SAME_CHARS = 200
"""Characters of the shortest result that is not shown a second time."""
MOST_SHORTENINGS = 2
"""Fixes after which an answer that was cut off is not sent back again."""
_log = log_of(__name__)


class Agent:
    """One attempt at a handoff. It is created before the claim, so that the claim can also
    reserve the first model call.
    """

    def __init__(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        opening: Opening,
        dependencies: RunDependencies,
    ) -> None:
        self._dependencies = dependencies
        self._handoff = handoff
        self._limits = handoff.limits
        self._takes_messages = handoff.step_id not in TAKES_NO_MESSAGES
        self._decides = tool_call_format(dependencies.answer_format)
        own_tools = (*opening.tools, *(self._decides.tools if self._decides else ()))
        self._tools: dict[str, Tool] = {}
        for tool in (*dependencies.tools, *own_tools):
            if tool.name in spec.tools or tool in own_tools:
                self._tools[tool.name] = tool
        self._conversation = Conversation(opening.message)
        for block in opening.message["content"]:
            dependencies.tool_context.note_text(str(block.get("text", "")))
        self._guard = CallGuard(handoff, dependencies.policy, dependencies.words_of_user)
        self._dependencies = dependencies = replace(
            dependencies,
            tool_context=replace(
                dependencies.tool_context,
                seen_origins=lambda: self._guard.origins(self._conversation),
            ),
        )
        self.can_take_messages = False
        """True if the agent has made its result, and can still change it for a message."""
        self._outcome = ResultBuilder(handoff, dependencies.answer_format, self._guard.origins)
        self._model_turns = ModelTurns(
            handoff.limits,
            opening.system,
            tuple(self._tools.values()),
            dependencies,
            self._guard.is_offered,
        )

    @property
    def model_name(self) -> str:
        """Return the requested name of the model."""
        return self._dependencies.model_name

    def first_call(self) -> tuple[WorstCase | None, ExpectedUsage | None]:
        """Return the bound and the expected rate-limit share of the first model call, so that
        both are reserved together with the claim. Both are None if they are not known yet.
        """
        return self._model_turns.first(self._conversation)

    def run(self, checkpoints: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Continue from the checkpoints of earlier claims, and return the result. A second run
        under the same claim takes the messages of users, and changes the result.

        Args:
            checkpoints: checkpoints of the claimed handoff.
            ends_at: end of the working time, Unix time in seconds. None: no end.

        Raises:
            Interrupted: this process has lost the claim, and may write nothing more.
            StoreError: checkpoints cannot be written.
        """
        is_second = self._dependencies.checkpoints is checkpoints
        self._dependencies = self._dependencies.claimed(checkpoints, ends_at)
        self._model_turns.use_claim(self._dependencies)
        try:
            if not is_second:
                self._append(*checkpoints.earlier_checkpoints())
            return self._result()
        except (Interrupted, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - a handoff always has a result; an error's text may hold payload, so the log has its place only
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "internal error in the agent loop",
                error=type(error).__name__,
                place=f"{Path(place.filename).name}:{place.lineno}",
            )
            return self._outcome.failed(
                self._conversation, StopReason.DEFECT, f"an internal error: {type(error).__name__}"
            )

    def _result(self) -> HandoffResult:
        """Run turns to the end. A limit or an error of the model becomes a result, too."""
        try:
            return self._run_turns()
        except LimitReached as limit:
            return self._outcome.stopped(
                self._conversation, _reason_of(limit), str(limit), self._model_turns.draft
            )
        except ModelRefused as error:
            return self._outcome.failed(
                self._conversation,
                StopReason.REFUSED,
                self._dependencies.without_secrets(str(error)),
            )
        except ModelError as error:  # a server may repeat the key that it refuses
            why = self._dependencies.without_secrets(str(error))
            return self._outcome.stopped_or_failed(
                self._conversation, StopReason.MODEL_ERROR, why, self._model_turns.draft
            )

    def _run_turns(self) -> HandoffResult:
        while True:
            reply = self._conversation.open_reply
            if reply is None:
                self._call_model()
            elif self._conversation.has_summary:
                self._compact(reply)
            elif self._has_calls_to_run(reply):
                self._run_calls(reply)
            elif (result := self._read(reply)) is not None and not self._continues(result, reply):
                return result

    def _continues(self, result: HandoffResult, reply: ModelReplied) -> bool:
        """Return whether users have sent messages since the last call, and the model can still
        change its answer. If so, take the messages.
        """
        self.can_take_messages = (
            result.stop_reason is StopReason.FINISHED
            and self._takes_messages
            and not calls_of(reply)
            and not self._model_turns.is_last(self._conversation)
        )
        has_messages = self._dependencies.checkpoints.has_messages
        return self.can_take_messages and has_messages and self._take_messages()

    def _take_messages(self) -> bool:
        """Take the messages of users for the next turn. Return whether there were any."""
        messages = self._dependencies.checkpoints.take_messages(self._conversation.turns + 1)
        self._append(*messages)
        return bool(messages)

    def _has_calls_to_run(self, reply: ModelReplied) -> bool:
        """Return whether the reply has calls for the loop to run. The calls of a decision and
        of a refused reply are not run.
        """
        calls = calls_of(reply)
        is_answer = self._decides is not None and self._decides.is_answer(calls)
        return bool(calls) and not is_answer and reply.stop_reason != "refusal"

    def _call_model(self) -> None:
        """Make one model call. Before the last call, tell the model that it is the last one.

        Raises:
            LimitReached: all turns are used, or see `ModelTurns.turn`.
            ModelError: see `ModelTurns.turn`.
        """
        self.can_take_messages = False
        if self._model_turns.read_batch(self._conversation, self._note):
            return
        if self._conversation.turns >= self._limits.max_turns:
            raise LimitReached(
                StopReason.MAX_TURNS, f"no answer within {self._limits.max_turns} turns"
            )
        if not self._conversation.is_paused and not self._conversation.is_summarizing:
            self._shorten()
        # A role that decides by calls must be able to call.
        is_last = self._decides is None and self._model_turns.is_last(self._conversation)
        # A text after a paused turn would end that turn. The API refuses a text after an
        # unfinished call.
        if is_last and not self._conversation.is_told_last and not self._conversation.is_paused:
            self._note(AgentPrompted(text=LAST_TURN))
        try:
            self._model_turns.turn(
                self._conversation,
                self._note,
                is_last=is_last,
                takes_messages=self._takes_messages and not self._must_go_on(),
            )
        except MessagesWaiting:
            self._take_messages()
        except ModelRejected as error:
            if not is_too_long(error) or not self._clear_refused_results():
                raise

    def _must_go_on(self) -> bool:
        """Return whether no message of a user may come before the next reply."""
        return self._conversation.is_paused or self._conversation.is_summarizing

    def _compact(self, reply: ModelReplied) -> None:
        """Put the summary in the last reply in place of all earlier turns. If it has no text, ask
        for the summary once more.
        """
        has_turns = self._conversation.turns < self._limits.max_turns
        is_first = self._conversation.summary_requests < MOST_REQUESTS
        if not text_of(reply.content).strip() and has_turns and is_first:
            self._prompt(self._model_turns.summary_request())
            return
        checkpoint = make_compaction(self._conversation, self._dependencies.tool_context)
        quotes = len(checkpoint.quotes)
        _log.info("earlier turns summarized", tokens=checkpoint.tokens, quotes=quotes)
        self._note(checkpoint)

    def _shorten(self) -> None:
        """Clear old results of tools if the next request would be large. If that does not suffice,
        ask the model for a summary in the next turn.
        """
        cleared = self._model_turns.results_to_clear(self._conversation)
        if cleared and not self._model_turns.is_summarized_first(self._conversation, cleared):
            self._note_cleared(cleared)
        if self._model_turns.needs_summary(self._conversation):
            self._note(AgentPrompted(text=self._model_turns.summary_request()))

    def _clear_refused_results(self) -> bool:
        """Clear old results of tools after the server has refused a request because of its
        length. Return whether any were cleared.
        """
        cleared = self._model_turns.results_to_clear(self._conversation, is_refused=True)
        if cleared is None:
            return False
        self._note_cleared(cleared)
        return True

    def _note_cleared(self, cleared: ContextCleared) -> None:
        results = len(cleared.tool_use_ids)
        _log.info("old results cleared", results=results, tokens=cleared.tokens)
        self._note(cleared)

    def _run_calls(self, reply: ModelReplied) -> None:
        """Run the calls that have no result yet, except calls that must not run. Calls that need
        an approval are asked about after the others have run.
        """
        runnable, refused = list[Block](), list[ToolObserved]()
        first_ids = ids_in(calls_of(reply)[:MOST_CALLS])
        started_ids = self._conversation.started
        for call in self._conversation.unanswered:
            if self._conversation.turns >= self._limits.max_turns:
                reason = NO_TURNS_LEFT
            elif reply.stop_reason == "max_tokens" and call is reply.content[-1]:
                reason = CUT_CALL
            elif call["id"] in started_ids or self._conversation.may_have_run(call):
                reason = MAY_HAVE_RUN
            elif call["id"] not in first_ids:
                reason = TOO_MANY_CALLS
            elif (stored := self._stored_result(call, runnable)) is not None:
                refused.append(stored)
                continue
            else:
                runnable.append(call)
                continue
            refused.append(observe_result(call, reason, is_error=True))
        checked = check_calls(
            runnable,
            self._tools,
            self._decide_call,
            self._dependencies.checkpoints.call_answers,
            asks=self._handoff.call_approval_s is not None,
        )
        refused += checked.refused
        if refused:
            self._note(*refused)
        self._run_allowed(checked)
        if checked.questions and self._handoff.call_approval_s is not None:
            self._heartbeat("asking for an approval")
            self._dependencies.checkpoints.ask_about_calls(
                checked.questions, self._handoff.call_approval_s
            )

    def _stored_result(self, call: Block, before: Sequence[Block]) -> ToolObserved | None:
        """Return the result of a call that need not run: a look-up that was made before, or
        `read_result` for a cleared result. None: the call must run.

        Args:
            before: calls of the same reply that will run.
        """
        tool = self._tools.get(str(call.get("name")))
        if tool is not None and tool.is_lookup:
            is_same = any(is_same_call(earlier, call) for earlier in before)
            if is_same or self._conversation.has_result_of(call, or_error=not tool.sends):
                return observe_result(call, SAME_CALL)
        return stored_result(self._conversation, call, tool)

    def _run_allowed(self, checked: CheckedCalls) -> None:
        """Run the calls that the policy or a person has allowed, and store their results."""
        doing = ", ".join(self._tool_labels(checked.allowed))
        if checked.allowed:
            self._heartbeat(doing)
        threads = ToolThreads(self._tools, self._dependencies.for_tools())
        for result in threads.results_of(
            checked.allowed, lambda: self._heartbeat(doing), self._note_start
        ):
            noted = checked.with_note(result)
            text = self._dependencies.without_secrets(visible(noted.text))
            tool = self._tool_of(noted)
            is_long_lookup = tool and tool.is_lookup and len(text) >= LEAST_SAME_CHARS
            if is_long_lookup and self._conversation.has_result(text):
                text = SAME_RESULT
            shown = noted.model_copy(update={"text": text})
            self._note(self._citable(self._conversation.with_room_for(shown), tool))

    def _decide_call(self, tool: Tool, arguments: Mapping[str, Any]) -> CallDecision:
        """Return the decision of the policy on a call."""
        decision = self._guard.decide(tool, dict(arguments), self._conversation)
        if decision.verdict is not CallVerdict.ALLOW:
            _log.info("call not allowed", tool=tool.name, verdict=decision.verdict.value)
        return decision

    def _tool_labels(self, calls: Sequence[Block]) -> list[str]:
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

    def _tool_of(self, result: ToolObserved) -> Tool | None:
        """Return the tool that a result of this turn comes from. None: there is no such tool."""
        for call in self._conversation.unanswered:
            if call["id"] == result.tool_use_id:
                return self._tools.get(str(call.get("name")))
        return None

    def _citable(self, result: ToolObserved, tool: Tool | None) -> ToolObserved:
        """Return the result of a call. If an answer may cite the result, add its source's name."""
        if tool is None or not tool.is_source or result.is_error or not result.text.strip():
            return result
        source = self._conversation.source_of(result.tool_use_id, self._handoff)
        return result.model_copy(update={"source": source})

    def _note_start(self, call: Block) -> None:
        """Store a checkpoint before a call of a tool that is not safe to repeat."""
        tool = self._tools.get(str(call.get("name")))
        if tool is not None and not tool.repeatable:
            self._note(ToolCallStarted(tool_use_id=call["id"]))

    def _read(self, reply: ModelReplied) -> HandoffResult | None:
        """Return the result of a final answer. None: the answer is invalid, and the model was
        told to fix it in another turn.
        """
        text = text_of(reply.content)
        if reply.stop_reason == "refusal":
            return self._outcome.failed(
                self._conversation, StopReason.REFUSED, text or "the model declined to answer"
            )
        has_turns = self._conversation.turns < self._limits.max_turns
        was_cut = reply.stop_reason in ("max_tokens", "model_context_window_exceeded")
        most_repairs = MOST_REPAIRS
        if was_cut:
            most_repairs = MOST_SHORTENINGS
        may_repair = has_turns and self._conversation.repairs < most_repairs
        if reply.stop_reason == "model_context_window_exceeded":
            may_repair = may_repair and self._clear_refused_results()
        try:
            answer = self._accepted(reply, text, was_cut=was_cut, last_try=not may_repair)
            return self._outcome.accepted(answer, self._conversation)
        except InvalidAnswer as problem:
            if not may_repair:
                return self._end_without_answer(str(problem), was_cut=was_cut)
            is_empty = not text.strip() and not calls_of(reply)
            if was_cut:
                self._prompt(TOO_LONG)
            elif is_empty:
                self._prompt(EMPTY)
            else:
                self._prompt(f"{UNUSABLE}{problem.for_model}.")
            return None

    def _accepted(
        self, reply: ModelReplied, text: str, *, was_cut: bool, last_try: bool
    ) -> AcceptedAnswer:
        """Return the parsed answer.

        Args:
            was_cut: True if the reply was cut off. Its calls are no answer then.
            last_try: see `AnswerFormat.read`.

        Raises:
            InvalidAnswer: the answer is empty, or the answer format refuses it.
        """
        if self._decides and (calls := calls_of(reply)):
            if was_cut:
                raise InvalidAnswer("the calls were cut off")
            return self._decides.read_calls(calls, last_try=last_try)
        if not text.strip():
            raise InvalidAnswer("the answer is empty")
        if was_cut and looks_cut(self._dependencies.answer_format, text):
            raise InvalidAnswer("the answer was cut off")
        return self._dependencies.answer_format.read(text, last_try=last_try)

    def _prompt(self, text: str) -> None:
        """Send a text to the model. Each call without a result first gets `NOTHING_DONE`,
        because the API requires a result.
        """
        checkpoints: list[Checkpoint] = []
        for call in self._conversation.unanswered:
            checkpoints.append(observe_result(call, NOTHING_DONE, is_error=True))
        self._note(*checkpoints, AgentPrompted(text=text))

    def _end_without_answer(self, problem: str, *, was_cut: bool) -> HandoffResult:
        """Return the result of an invalid answer that the model may not fix any more."""
        if was_cut:
            return self._outcome.stopped(
                self._conversation,
                StopReason.MAX_TOKENS,
                "the answer was cut off at its length limit",
            )
        if self._conversation.turns >= self._limits.max_turns and self._conversation.repairs == 0:
            return self._outcome.stopped(
                self._conversation,
                StopReason.MAX_TURNS,
                f"no usable answer within {self._conversation.turns} turns: {problem}",
            )
        return self._outcome.stopped_or_failed(
            self._conversation, StopReason.INVALID_OUTPUT, problem
        )

    def _heartbeat(self, doing: str) -> None:
        """Send a heartbeat, and check the claim and the remaining time, while tools run.

        Raises:
            Interrupted: this process has lost the claim.
            LimitReached: the time is over.
        """
        self._dependencies.checkpoints.heartbeat(doing)
        if self._dependencies.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, f"while running {doing}")

    def _note(self, *checkpoints: Checkpoint, deferrable: bool = False) -> None:
        """Store the checkpoints, and then add them to the conversation."""
        self._dependencies.checkpoints.checkpoint(*checkpoints, deferrable=deferrable)
        self._append(*checkpoints)

    def _append(self, *checkpoints: Checkpoint) -> None:
        """Add checkpoints to the conversation. Note the texts of their tool results for the check
        of quotes, and results that can be cited.
        """
        self._conversation = self._conversation.plus(*checkpoints)
        context = self._dependencies.tool_context
        for checkpoint in checkpoints:
            if isinstance(checkpoint, ContextCleared | ContextCompacted):
                self._hide(checkpoint)
            if not isinstance(checkpoint, ToolObserved) or checkpoint.is_error:
                continue
            context.note_text(checkpoint.text)
            if checkpoint.source:
                context.note_result(checkpoint.source, checkpoint.text)

    def _hide(self, cleared: ContextCleared | ContextCompacted) -> None:
        """Tell the tools that the model no longer sees these results."""
        for observed in self._conversation.observed:
            if observed.tool_use_id in cleared.tool_use_ids:
                self._dependencies.tool_context.hide_text(observed.text)


def _reason_of(limit: LimitReached) -> StopReason:
    """Return the stop reason of a limit. A limit of the handoff itself has the same name as
    its stop reason.
    """
    match limit.level:
        case Level.HANDOFF:
            return StopReason(limit.limit)
        case Level.JOB:
            return StopReason.JOB_BUDGET
        case Level.ANCESTOR:
            return StopReason.PARENT_BUDGET
        case Level.TENANT | Level.INSTALLATION:
            return StopReason.DAY_BUDGET
        case _:
            assert_never(limit.level)
