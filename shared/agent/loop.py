"""The agent loop of specialists and of the supervisor's roles: turn, tool calls, observations,
until a validated result or a limit.

The loop knows a `Model`, `Tool`s, a `CheckpointStore` and an `AnswerFormat`. It knows neither Redis
nor Celery nor a provider. The checkpoints so far determine the next action, so a resumed handoff
needs no special case: the loop reads the conversation and continues.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import assert_never

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer, decider
from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.agent.conversation import (
    EMPTY,
    LAST_TURN,
    TOO_LONG,
    UNUSABLE,
    Conversation,
    calls_of,
    text_of,
)
from handoff_queue.shared.agent.model_turn import ModelTurns
from handoff_queue.shared.agent.outcome import ResultBuilder
from handoff_queue.shared.agent.prompt import Opening
from handoff_queue.shared.agent.run_dependencies import RunDependencies
from handoff_queue.shared.agent.tool_calls import (
    CUT_CALL,
    MAY_HAVE_RUN,
    MOST_CALLS,
    NO_TURNS_LEFT,
    NOTHING_DONE,
    TOO_MANY_CALLS,
    UNKNOWN,
    observe_result,
)
from handoff_queue.shared.agent.tool_threads import ToolThreads
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ModelReplied,
    ToolCallStarted,
    ToolObserved,
    WorstCase,
)
from handoff_queue.shared.types.errors import (
    Interrupted,
    Level,
    LimitReached,
    ModelError,
    ModelRefused,
    StoreError,
)
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, StopReason
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.rate_limits import Expected
from handoff_queue.shared.types.specialist import SpecialistSpec

MOST_REPAIRS = 1
"""Times that a model may fix an invalid answer. A model that fails twice fails again."""
MOST_SHORTENINGS = 2
_log = log_of(__name__)


class Agent:
    """A run of one handoff. It is made before the claim, so that the claim reserves the first call,
    too.
    """

    def __init__(
        self,
        handoff: AgentHandoff,
        spec: SpecialistSpec,
        opening: Opening,
        equipment: RunDependencies,
    ) -> None:
        self._equipment = equipment
        self._handoff = handoff
        self._limits = handoff.limits
        self._decides = decider(equipment.reading)
        own = (*opening.tools, *(self._decides.tools if self._decides else ()))
        self._tools = {
            tool.name: tool
            for tool in (*equipment.tools, *own)
            if tool.name in spec.tools or tool in own
        }
        self._talk = Conversation(opening.message)
        self._outcome = ResultBuilder(handoff, equipment.reading)
        self._model_turns = ModelTurns(
            handoff.limits, opening.system, tuple(self._tools.values()), equipment
        )

    @property
    def model_name(self) -> str:
        """Return the requested name of the model."""
        return self._equipment.model_name

    def first_call(self) -> tuple[WorstCase | None, Expected | None]:
        """Return the bound and the expected rate-limit share of the first model call, so that both
        are reserved together with the claim. Both are None if they are not known yet.
        """
        return self._model_turns.first(self._talk)

    def run(self, turns: CheckpointStore, ends_at: float | None) -> HandoffResult:
        """Go on from the checkpoints of earlier claims to the result, under a claim that may
        work until `ends_at` (Unix time in seconds).

        Raises:
            Interrupted: the claim is gone; nothing more may be written.
            StoreError: checkpoints cannot be written.
        """
        self._equipment = self._model_turns.equipment = self._equipment.claimed(turns, ends_at)
        try:
            self._grow(*turns.so_far())
            return self._result()
        except (Interrupted, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - a handoff always has a result; the text of a stranger's error may hold payload, its place not
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "defect in the agent loop",
                error=type(error).__name__,
                place=f"{Path(place.filename).name}:{place.lineno}",
            )
            return self._outcome.failed(
                self._talk, StopReason.DEFECT, f"an internal error: {type(error).__name__}"
            )

    def _result(self) -> HandoffResult:
        """Run to the end, and return the result or the reason of the stop."""
        try:
            return self._go_on()
        except LimitReached as limit:
            return self._outcome.stopped(
                self._talk, _reason_of(limit), str(limit), self._model_turns.draft
            )
        except ModelRefused as error:
            return self._outcome.failed(self._talk, StopReason.REFUSED, str(error))
        except ModelError as error:
            return self._outcome.stopped_or_failed(
                self._talk, StopReason.MODEL_ERROR, str(error), self._model_turns.draft
            )

    def _go_on(self) -> HandoffResult:
        while True:
            reply = self._talk.open_reply
            if reply is None:
                self._think()
            elif self._has_calls_to_run(reply):
                self._act(reply)
            elif (result := self._read(reply)) is not None:
                return result

    def _has_calls_to_run(self, reply: ModelReplied) -> bool:
        """Return whether the calls of a reply are for tools. No call of a refused reply is run."""
        calls = calls_of(reply)
        is_answer = self._decides is not None and self._decides.is_answer(calls)
        return bool(calls) and not is_answer and reply.stop_reason != "refusal"

    def _think(self) -> None:
        """Make one model call, after telling the model if it is the last one."""
        if self._talk.turns >= self._limits.max_turns:
            raise LimitReached(
                StopReason.MAX_TURNS, f"no answer within {self._limits.max_turns} turns"
            )
        is_last = self._decides is None and self._model_turns.is_last(
            self._talk
        )  # a role that decides by calls must be able to call
        # Text behind a paused turn would end that turn, and the API refuses it behind an
        # unfinished call.
        if is_last and not self._talk.is_told_last and not self._talk.is_paused:
            self._note(AgentPrompted(text=LAST_TURN))
        self._model_turns.turn(self._talk, self._note, is_last=is_last)

    def _act(self, reply: ModelReplied) -> None:
        """Run the calls that have no result yet, except calls that must not run."""
        runnable, refused = list[Block](), list[ToolObserved]()
        talk, first_calls = self._talk, [call["id"] for call in calls_of(reply)[:MOST_CALLS]]
        started = talk.started
        for call in talk.unanswered:
            if talk.turns >= self._limits.max_turns:
                why = NO_TURNS_LEFT
            elif reply.stop_reason == "max_tokens" and call is reply.content[-1]:
                why = CUT_CALL
            elif call["id"] in started or talk.may_have_run(call):
                why = MAY_HAVE_RUN
            elif call["id"] not in first_calls:
                why = TOO_MANY_CALLS
            else:
                runnable.append(call)
                continue
            refused.append(observe_result(call, why, is_error=True))
        if refused:
            self._note(*refused)
        names = (
            str(call.get("name")) for call in runnable
        )  # in the model's order, and each with a heartbeat
        doing = ", ".join(dict.fromkeys(name if name in self._tools else UNKNOWN for name in names))
        if runnable:
            self._pulse(doing)
        threads = ToolThreads(self._tools, self._equipment.for_tools())
        for result in threads.results_of(runnable, lambda: self._pulse(doing), self._starts):
            self._note(self._citable(self._talk.with_room_for(result)))

    def _citable(self, result: ToolObserved) -> ToolObserved:
        """Return the result of a call with the name of its source, if an answer may cite it."""
        calls = self._talk.unanswered
        name = None
        for call in calls:
            if call["id"] == result.tool_use_id:
                name = call.get("name")
                break
        tool = self._tools.get(str(name))
        if tool is None or not tool.is_source or result.is_error or not result.text.strip():
            return result
        source = self._talk.source_of(result.tool_use_id, self._handoff)
        return result.model_copy(update={"source": source})

    def _starts(self, call: Block) -> None:
        """Note that a tool that is not safe to repeat is about to run."""
        tool = self._tools.get(str(call.get("name")))
        if tool is not None and not tool.repeatable:
            self._note(ToolCallStarted(tool_use_id=call["id"]))

    def _read(self, reply: ModelReplied) -> HandoffResult | None:
        """Take a final answer; None: the model was told what to mend, and has a turn for it."""
        text = text_of(reply.content)
        if reply.stop_reason == "refusal":
            return self._outcome.failed(
                self._talk, StopReason.REFUSED, text or "the model declined to answer"
            )
        has_turns = self._talk.turns < self._limits.max_turns
        was_cut = reply.stop_reason in ("max_tokens", "model_context_window_exceeded")
        may_repair = has_turns and self._talk.repairs < (
            MOST_SHORTENINGS if was_cut else MOST_REPAIRS
        )
        if reply.stop_reason == "model_context_window_exceeded":
            may_repair = False
        try:
            return self._outcome.accepted(
                self._accepted(reply, text, was_cut=was_cut, last_try=not may_repair), self._talk
            )
        except InvalidAnswer as problem:
            if may_repair:
                is_empty = not text.strip() and not calls_of(reply)
                if was_cut:
                    self._tell(TOO_LONG)
                elif is_empty:
                    self._tell(EMPTY)
                else:
                    self._tell(f"{UNUSABLE}{problem}.")
                return None
            return self._given_up(str(problem), was_cut=was_cut)

    def _accepted(
        self, reply: ModelReplied, text: str, *, was_cut: bool, last_try: bool
    ) -> AcceptedAnswer:
        """Accept the answer.

        Raises:
            InvalidAnswer: the answer format refuses it.
        """
        if self._decides and (calls := calls_of(reply)):
            if was_cut:
                raise InvalidAnswer("the calls were cut off")
            return self._decides.read_calls(calls, last_try=last_try)
        if not text.strip():
            raise InvalidAnswer("the answer is empty")
        return self._equipment.reading.read(text, last_try=last_try)

    def _tell(self, what: str) -> None:
        """Tell the model what to fix. If the answer was calls, each call gets this as its result."""
        self._note(
            *(observe_result(call, NOTHING_DONE, is_error=True) for call in self._talk.unanswered),
            AgentPrompted(text=what),
        )

    def _given_up(self, problem: str, *, was_cut: bool) -> HandoffResult:
        """Return the result of a run without a valid answer and without further tries."""
        if was_cut:
            return self._outcome.stopped(
                self._talk, StopReason.MAX_TOKENS, "the answer was cut off at its length limit"
            )
        if self._talk.turns >= self._limits.max_turns and self._talk.repairs == 0:
            return self._outcome.stopped(
                self._talk,
                StopReason.MAX_TURNS,
                f"no usable answer within {self._talk.turns} turns: {problem}",
            )
        return self._outcome.stopped_or_failed(self._talk, StopReason.INVALID_OUTPUT, problem)

    def _pulse(self, doing: str) -> None:
        """Check the claim and the remaining time while tools run."""
        self._equipment.turns.beat(doing)
        if self._equipment.left_s <= 0:
            raise LimitReached(StopReason.DEADLINE, f"while running {doing}")

    def _note(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        """Store the checkpoints first, and then continue from them."""
        self._equipment.turns.checkpoint(*checkpoints, may_wait=may_wait)
        self._grow(*checkpoints)

    def _grow(self, *checkpoints: Checkpoint) -> None:
        """Add checkpoints to the conversation, and their tool results to the citable sources."""
        self._talk = self._talk.plus(*checkpoints)
        for item in checkpoints:
            if isinstance(item, ToolObserved) and item.source:
                self._equipment.tool_context.note_result(item.source, item.text)


def _reason_of(limit: LimitReached) -> StopReason:
    """Return the stop reason of a limit. The handoff's own limits have the names of stop reasons."""
    match limit.level:
        case Level.HANDOFF:
            return StopReason(limit.limit)
        case Level.JOB:
            return StopReason.JOB_BUDGET
        case Level.ABOVE:
            return StopReason.PARENT_BUDGET
        case Level.TENANT | Level.INSTALLATION:
            return StopReason.DAY_BUDGET
        case _:
            assert_never(limit.level)
