"""The agent loop of specialists and of the supervisor's roles. It calls the model and runs the
tool calls of each reply, until there is a valid result or a limit is reached.

The loop uses a `Model`, `Tool`s, a `CheckpointStore` and an `AnswerFormat`. It knows neither
Redis nor Celery nor a provider. The checkpoints so far determine the next action, so a resumed
handoff needs no special case: the loop reads the conversation and continues.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    Defect,
    InvalidAnswer,
    get_shortening_advice,
    get_tool_call_format,
    looks_cut,
)
from handoff_queue.shared.agent.call_builder import CallBuilder
from handoff_queue.shared.agent.call_reservation import FirstCall
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.checkpointed_conversation import CheckpointedConversation
from handoff_queue.shared.agent.compaction import MAX_REQUESTS, get_summary_text, make_compaction
from handoff_queue.shared.agent.conversation import Conversation, find_calls, get_final_text
from handoff_queue.shared.agent.handoff_result import ResultBuilder, explain_decline
from handoff_queue.shared.agent.model_turn import ModelTurns
from handoff_queue.shared.agent.opening_message import Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_call_runner import ToolCallRunner
from handoff_queue.shared.agent.tool_calls import observe_no_result
from handoff_queue.shared.agent.tool_policy import CallGuard
from handoff_queue.shared.agent.tool_result_clearing import is_too_long
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ContextCleared,
    ModelReplied,
    NoResult,
    PromptReason,
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
from handoff_queue.shared.types.model import CONTEXT_FULL, CUT_OFF
from handoff_queue.shared.types.names import TAKES_NO_MESSAGES
from handoff_queue.shared.types.specialist import SpecialistSpec

LAST_TURN = (
    "This is your last turn: you can call no more tools. Answer now, from the results so far."
)
"""It asks for no length, because `TOO_LONG` may come before it."""
UNUSABLE = "Your answer cannot be used: "
TOO_LONG = "Your answer was cut off because it was too long."
"""Beginning of `build_too_long_prompt`."""
MIN_NAMED_WORDS = 50
"""A smaller number of words is not named, because the server did not report the tokens."""
EMPTY = f"{UNUSABLE}it is empty."
MAX_REPAIRS = 1
"""Times that a model may fix an invalid answer. A model that fails twice fails again."""
MAX_SHORTENINGS = 1
"""Times that a model may shorten an answer that was cut off. Each answer costs its whole length
limit, and a model that writes too much twice writes too much again.
"""
MAX_CALLS_AFTER_LAST_TURN = 2
"""Replies with calls of tools after the last turn. A model that calls once more may answer then."""
REPEATS_PROMPTS = Defect("the answer only repeats its instructions", "give the work itself")
_log = get_log(__name__)


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
        self._limits = handoff.limits
        self._takes_messages = handoff.step_id not in TAKES_NO_MESSAGES
        self._decides = get_tool_call_format(dependencies.answer_format)
        """The format of an answer by tool calls; None: the answer is a text."""
        tools = self._build_tools(spec, opening, dependencies)
        self._has_tools = bool(tools)
        guard = CallGuard(handoff, dependencies.policy, dependencies.words_of_user)
        context = replace(
            dependencies.tool_context,
            seen_origins=lambda: guard.collect_origins(self._conversation),
        )
        for block in opening.message["content"]:
            context.record_text(str(block.get("text", "")))
        dependencies = replace(dependencies, tool_context=context)
        self._transcript = CheckpointedConversation(Conversation(opening.message), dependencies)
        self.can_take_messages = False
        """True if the agent has made its result, and can still change it for a message."""
        self._result_builder = ResultBuilder(
            handoff, dependencies.answer_format, guard.collect_origins
        )
        self._tool_calls = ToolCallRunner(handoff, tools, guard, self._transcript)
        builder = CallBuilder(
            handoff.limits, opening.system, tuple(tools.values()), dependencies, guard.is_offered
        )
        self._model_turns = ModelTurns(handoff.limits, builder, dependencies)
        self._next_turn = self._model_turns.next_turn

    def _build_tools(
        self, spec: SpecialistSpec, opening: Opening, dependencies: RunDependencies
    ) -> dict[str, Tool]:
        """Return the tools of the agent, by name. The specialist's file, the opening and the answer
        format name them.
        """
        own_tools = [*opening.tools]
        if self._decides is not None:
            own_tools += self._decides.tools
        tools: dict[str, Tool] = {}
        for tool in (*dependencies.tools, *own_tools):
            if tool.name in spec.tools or tool in own_tools:
                tools[tool.name] = tool
        return tools

    @property
    def _conversation(self) -> Conversation:
        return self._transcript.conversation

    @property
    def _dependencies(self) -> RunDependencies:
        return self._transcript.dependencies

    @property
    def model_name(self) -> str:
        """Return the requested name of the model."""
        return self._dependencies.model_name

    def estimate_first_call(self) -> FirstCall:
        """Return the first model call, which is reserved together with the claim."""
        return self._model_turns.estimate_first_call(self._conversation)

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
        self._transcript.dependencies = self._dependencies.with_claim(checkpoints, ends_at)
        self._model_turns.use_claim(self._dependencies)
        try:
            if not is_second:
                self._transcript.add(*checkpoints.load_earlier_checkpoints())
            return self._run_to_result()
        except (Interrupted, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - a handoff always has a result; an error's text may hold payload, so the log has its place only
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "internal error in the agent loop",
                error=type(error).__name__,
                place=f"{Path(place.filename).name}:{place.lineno}",
            )
            return self._result_builder.build_failed_result(
                self._conversation,
                StopReason.INTERNAL_ERROR,
                f"an internal error: {type(error).__name__}",
            )

    def _run_to_result(self) -> HandoffResult:
        """Run turns to the end. A limit or an error of the model becomes a result, too."""
        try:
            return self._run_turns()
        except LimitReached as limit:
            return self._result_builder.build_stopped_result(
                self._conversation, _get_stop_reason(limit), str(limit), self._model_turns.draft
            )
        except ModelRefused as error:
            return self._result_builder.build_failed_result(
                self._conversation,
                StopReason.REFUSED,
                self._dependencies.without_secrets(str(error)),
            )
        except ModelError as error:  # a server may repeat the key that it refuses
            why = self._dependencies.without_secrets(str(error))
            return self._result_builder.build_salvaged_or_failed_result(
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
                self._tool_calls.run(reply)
            else:
                result = self._read(reply)
                if result is not None and not self._take_late_messages(result, reply):
                    return result

    def _take_late_messages(self, result: HandoffResult, reply: ModelReplied) -> bool:
        """Return whether users have sent messages since the last call, and the model can still
        change its answer. If so, take the messages.
        """
        self.can_take_messages = (
            result.stop_reason is StopReason.FINISHED
            and self._takes_messages
            and not find_calls(reply)
            and not self._next_turn.is_last(self._conversation)
        )
        if not self.can_take_messages or not self._dependencies.checkpoints.has_messages:
            return False
        return self._take_messages()

    def _take_messages(self) -> bool:
        """Take the messages of users for the next turn. Return whether there were any."""
        messages = self._dependencies.checkpoints.take_messages(self._conversation.turns + 1)
        self._transcript.add(*messages)
        return bool(messages)

    def _has_calls_to_run(self, reply: ModelReplied) -> bool:
        """Return whether the reply has calls for the loop to run. The calls of a decision and
        of a refused reply are not run.
        """
        calls = find_calls(reply)
        is_answer = self._decides is not None and self._decides.is_answer(calls)
        return bool(calls) and not is_answer and reply.stop_reason != "refusal"

    def _call_model(self) -> None:
        """Make one model call. Before the last call, tell a model with tools that it is the last
        one. A model without tools answers in each turn.

        Raises:
            LimitReached: all turns are used, or see `ModelTurns.make_turn`.
            ModelError: see `ModelTurns.make_turn`.
        """
        self.can_take_messages = False
        if self._model_turns.read_batch(self._conversation, self._transcript.store):
            return
        if self._conversation.turns >= self._limits.max_turns:
            raise LimitReached(
                StopReason.MAX_TURNS, f"no answer within {self._limits.max_turns} turns"
            )
        if self._conversation.calls_after_last_turn >= MAX_CALLS_AFTER_LAST_TURN:
            raise LimitReached(StopReason.MAX_TURNS, "no answer: it calls tools in its last turn")
        if not self._conversation.is_paused and not self._conversation.is_summarizing:
            self._shorten()
        # A role that decides by calls must be able to call.
        is_last = self._decides is None and self._next_turn.is_last(self._conversation)
        is_told = is_last and self._has_tools and not self._conversation.is_told_last
        # A text after a paused turn would end that turn. The API refuses a text after an
        # unfinished call.
        if is_told and not self._conversation.is_paused:
            self._transcript.store(AgentPrompted(reason=PromptReason.LAST_TURN, text=LAST_TURN))
        try:
            self._model_turns.make_turn(
                self._conversation,
                self._transcript.store,
                is_last=is_last,
                takes_messages=self._takes_messages and not self._is_turn_unfinished(),
            )
        except MessagesWaiting:
            self._take_messages()
        except ModelRejected as error:
            if not is_too_long(error) or not self._clear_refused_results():
                raise

    def _is_turn_unfinished(self) -> bool:
        """Return whether no message of a user may come before the next reply."""
        return self._conversation.is_paused or self._conversation.is_summarizing

    def _compact(self, reply: ModelReplied) -> None:
        """Put the summary in the last reply in place of all earlier turns. If it has no text, ask
        for the summary once more.
        """
        has_turns = self._conversation.turns < self._limits.max_turns
        is_first = self._conversation.summary_requests < MAX_REQUESTS
        if not get_summary_text(reply.content).strip() and has_turns and is_first:
            self._send_prompt(PromptReason.SUMMARY, self._next_turn.build_summary_request())
            return
        checkpoint = make_compaction(self._conversation, self._dependencies.tool_context)
        quotes = len(checkpoint.quotes)
        _log.info(
            "a summary has replaced the earlier turns", tokens=checkpoint.tokens, quotes=quotes
        )
        self._transcript.store(checkpoint)

    def _shorten(self) -> None:
        """Clear old results of tools if the next request would be large, or leave that to the
        provider. If that does not suffice, ask the model for a summary in the next turn.
        """
        cleared = None
        if not self._conversation.is_just_cleared:  # a resumed handoff clears no more results
            cleared = self._next_turn.choose_results_to_clear(self._conversation)
        if cleared and self._next_turn.leaves_to_provider(self._conversation, cleared):
            return
        if cleared and not self._next_turn.is_summarized_first(self._conversation, cleared):
            self._record_cleared(cleared)
        if self._next_turn.needs_summary(self._conversation):
            text = self._next_turn.build_summary_request()
            self._transcript.store(AgentPrompted(reason=PromptReason.SUMMARY, text=text))

    def _clear_refused_results(self) -> bool:
        """Clear old results of tools after the server has refused a request because of its
        length. Return whether any were cleared.
        """
        cleared = self._next_turn.choose_results_to_clear(self._conversation, is_refused=True)
        if cleared is None:
            return False
        self._record_cleared(cleared)
        return True

    def _record_cleared(self, cleared: ContextCleared) -> None:
        results = len(cleared.tool_use_ids)
        _log.info("old results of tools were cleared", results=results, tokens=cleared.tokens)
        self._transcript.store(cleared)

    def _read(self, reply: ModelReplied) -> HandoffResult | None:
        """Return the result of a final answer. None: the answer is invalid, and the model was
        told to fix it in another turn.
        """
        text = get_final_text(reply.content)
        if reply.stop_reason == "refusal":
            return self._result_builder.build_failed_result(
                self._conversation, StopReason.REFUSED, explain_decline(self._conversation, text)
            )
        was_cut = reply.stop_reason in CUT_OFF
        may_repair = self._may_repair(was_cut=was_cut)
        if may_repair and reply.stop_reason == CONTEXT_FULL:
            may_repair = self._clear_refused_results()
        try:
            answer = self._parse_answer(reply, text, was_cut=was_cut, last_try=not may_repair)
            return self._result_builder.build_from_answer(answer, self._conversation)
        except InvalidAnswer as problem:
            if not may_repair:
                return self._end_without_answer(str(problem), reply)
            if was_cut:
                advice = get_shortening_advice(self._dependencies.answer_format)
                text = build_too_long_prompt(reply.usage.output_tokens, advice)
                self._send_prompt(PromptReason.LONG_ANSWER, text)
            elif not text.strip() and not find_calls(reply):
                self._send_prompt(PromptReason.EMPTY_ANSWER, EMPTY)
            else:
                self._send_prompt(PromptReason.INVALID_ANSWER, f"{UNUSABLE}{problem.for_model}.")
            return None

    def _may_repair(self, *, was_cut: bool) -> bool:
        """Return whether the model may fix or shorten an invalid answer in another turn."""
        if self._conversation.turns >= self._limits.max_turns:
            return False
        if was_cut:
            return self._conversation.shortenings < MAX_SHORTENINGS
        return self._conversation.repairs < MAX_REPAIRS

    def _parse_answer(
        self, reply: ModelReplied, text: str, *, was_cut: bool, last_try: bool
    ) -> AcceptedAnswer:
        """Return the parsed answer.

        Args:
            was_cut: True if the reply was cut off. Its calls are not an answer then.
            last_try: see `AnswerFormat.read`.

        Raises:
            InvalidAnswer: the answer is empty, or the answer format refuses it.
        """
        calls = find_calls(reply)
        if self._decides is not None and calls:
            if was_cut:
                raise InvalidAnswer("the calls were cut off")
            return self._decides.read_calls(calls, last_try=last_try)
        if not text.strip():
            raise InvalidAnswer("the answer is empty")
        if self._conversation.only_repeats_prompts(text):
            raise InvalidAnswer(REPEATS_PROMPTS)
        if was_cut and looks_cut(self._dependencies.answer_format, text):
            raise InvalidAnswer("the answer was cut off")
        return self._dependencies.answer_format.read(text, last_try=last_try)

    def _send_prompt(self, reason: PromptReason, text: str) -> None:
        """Send a text to the model. Each call without a result first gets
        a line, because the API requires a result.
        """
        checkpoints: list[Checkpoint] = []
        for call in self._conversation.unanswered:
            checkpoints.append(observe_no_result(call, NoResult.NOTHING_DONE))
        self._transcript.store(*checkpoints, AgentPrompted(reason=reason, text=text))

    def _end_without_answer(self, problem: str, reply: ModelReplied) -> HandoffResult:
        """Return the result of an invalid answer that the model may not fix any more."""
        if reply.stop_reason in CUT_OFF:
            limit = f"at its limit of {self._limits.max_output_tokens:,} tokens"
            if reply.stop_reason == CONTEXT_FULL:
                limit = "because the context window of the model was full"
            return self._result_builder.build_stopped_result(
                self._conversation, StopReason.MAX_TOKENS, f"the answer was cut off {limit}"
            )
        if self._conversation.turns >= self._limits.max_turns and self._conversation.repairs == 0:
            return self._result_builder.build_stopped_result(
                self._conversation,
                StopReason.MAX_TURNS,
                f"no usable answer within {self._conversation.turns} turns: {problem}",
            )
        return self._result_builder.build_salvaged_or_failed_result(
            self._conversation, StopReason.INVALID_OUTPUT, problem
        )


def _get_stop_reason(limit: LimitReached) -> StopReason:
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


def build_too_long_prompt(output_tokens: int, advice: str = "") -> str:
    """Return the prompt for a shorter answer: about half as long, at 0.6 words for each token.

    Args:
        output_tokens: tokens of the answer that was cut off.
        advice: a sentence about the parts that can be shorter.
    """
    words = output_tokens * 3 // 10
    size = "much shorter"
    if words >= MIN_NAMED_WORDS:
        size = f"in at most {words:,} words"
    return f"{TOO_LONG} Give it again, whole, and {size}. {advice}".rstrip()
