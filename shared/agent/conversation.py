"""The conversation of one handoff, as the model sees it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from types import UnionType

from handoff_queue.shared.agent.request_messages import (
    SERVER_CALLS,
    THINKING,
    add_blocks,
    build_cleared_result_block,
    build_sendable_blocks,
    build_tool_result_block,
    build_user_message_block,
    find_open_server_calls,
    sort_results_first,
    without_unfinished_calls,
)
from handoff_queue.shared.agent.summary_messages import build_summary_block, find_provider_block
from handoff_queue.shared.agent.tool_call_ids import CALLS, list_ids
from handoff_queue.shared.agent.tool_calls import (
    CUT_CALL,
    MAY_HAVE_RUN,
    REPEATED,
    SAME_CALL,
    SAME_RESULT,
    TRY_OTHERWISE,
    UNKNOWN_TOOL,
)
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    BatchClosed,
    BatchCreated,
    BatchIntended,
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelCallFailed,
    ModelReplied,
    NoResult,
    ObservedImage,
    PromptReason,
    ToolCallStarted,
    ToolObserved,
    UserPrompted,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import Block, MessageParam
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

_QUOTED = re.compile(r'"[^"]*"')


MIN_COPIED_CHARS = 20
"""Characters of the shortest line that counts as a copy of a message to the model."""
COPIED = 0.9
"""Least similarity of a copy, from 0 to 1. Copies of SmolLM2 with one other word have 0.96."""
MAX_COMPARED_CHARS = 500
"""Characters of the longest message whose near copies are refused. The time of a comparison may
grow with the third power of the length: two repetitive texts of 900 characters take 3 s.
"""
MAX_IMAGES_A_REQUEST = 20
"""Images in one conversation. With more, the Messages API takes only images of at most 2,000
pixels a side.
"""
MAX_IMAGE_CHARS = 10_000_000
"""Characters of base64 in one conversation. Redis stores them, and each request of the
conversation carries them.
"""
NO_ROOM_FOR_IMAGE = "[an image is left out: this conversation holds as many images as it can]"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The opening message and the checkpoints after it. `add` returns a longer conversation.
    Every property is computed from the checkpoints alone.
    """

    opening: MessageParam
    checkpoints: tuple[Checkpoint, ...] = ()

    def add(self, *checkpoints: Checkpoint) -> Conversation:
        return Conversation(self.opening, (*self.checkpoints, *checkpoints))

    @property
    def turns(self) -> int:
        """Number of model calls, including calls without a reply."""
        total = 0
        for checkpoint in self.checkpoints:
            total += isinstance(checkpoint, ModelReplied | ModelCallFailed)
        return total

    @property
    def failures_in_a_row(self) -> int:
        """Number of failed model calls since the last reply."""
        count = 0
        for checkpoint in reversed(self.checkpoints):
            if isinstance(checkpoint, ModelReplied):
                break
            count += isinstance(checkpoint, ModelCallFailed)
        return count

    @property
    def usage(self) -> Usage:
        """Usage of all model calls together."""
        usage = NOTHING_USED
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied | ModelCallFailed):
                usage += checkpoint.usage
        return usage

    @property
    def replies(self) -> list[ModelReplied]:
        """All replies of the model, oldest first."""
        replies: list[ModelReplied] = []
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied):
                replies.append(checkpoint)
        return replies

    @property
    def replies_by_model(self) -> dict[str, int]:
        """Number of replies of each model, by its name in the server's answers. A model that
        declined to answer, and was replaced by another one, has its name in the request.
        """
        replies: Counter[str] = Counter()
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied):
                replies[checkpoint.model] += 1
            elif (name := _find_decliner(checkpoint)) is not None:
                replies[name] += 1
        return dict(replies)

    @property
    def declined_by(self) -> list[str]:
        """Names of the models that declined to answer, in the order of their replies."""
        names: dict[str, None] = {}
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied) and checkpoint.stop_reason == "refusal":
                names[checkpoint.model] = None
            elif (name := _find_decliner(checkpoint)) is not None:
                names[name] = None
        return list(names)

    @property
    def replied_tokens(self) -> int:
        """Number of tokens that the calls with a reply have used. Failed calls are left out,
        because their usage is often only an upper bound.
        """
        total = 0
        for reply in self.replies:
            total += reply.usage.total_tokens
        return total

    @property
    def last_reply(self) -> ModelReplied | None:
        for checkpoint in reversed(self.checkpoints):
            if isinstance(checkpoint, ModelReplied):
                return checkpoint
        return None

    @property
    def since_reply(self) -> tuple[Checkpoint, ...]:
        """Checkpoints after the last reply, or all checkpoints if there is no reply."""
        for index in range(len(self.checkpoints), 0, -1):
            if isinstance(self.checkpoints[index - 1], ModelReplied):
                return self.checkpoints[index:]
        return self.checkpoints

    @property
    def last_tool_error(self) -> tuple[str, str] | None:
        """Name of the tool that failed last, and its error. None: each tool that failed has
        succeeded since.
        """
        names: dict[str, str] = {}
        latest: dict[str, ToolObserved] = {}
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied):
                for call in find_calls(checkpoint):
                    names[call["id"]] = str(call.get("name"))
            elif isinstance(checkpoint, ToolObserved) and checkpoint.no_result is None:
                name = names.get(checkpoint.tool_use_id, UNKNOWN_TOOL)
                latest.pop(name, None)
                latest[name] = checkpoint
        for name, observed in reversed(latest.items()):
            if observed.is_error:
                return name, observed.text.removesuffix(TRY_OTHERWISE)
        return None

    @property
    def unanswered(self) -> list[Block]:
        """Tool calls of the last reply that have no result yet."""
        reply = self.last_reply
        if reply is None:
            return []
        answered_ids: set[str] = set()
        for checkpoint in self.since_reply:
            if isinstance(checkpoint, ToolObserved):
                answered_ids.add(checkpoint.tool_use_id)
        unanswered: list[Block] = []
        for call in find_calls(reply):
            if call["id"] not in answered_ids:
                unanswered.append(call)
        return unanswered

    @property
    def started_ids(self) -> set[str]:
        """Ids of the last reply's calls that have started and are not safe to repeat."""
        ids: set[str] = set()
        for checkpoint in self.since_reply:
            if isinstance(checkpoint, ToolCallStarted):
                ids.add(checkpoint.tool_use_id)
        return ids

    @property
    def has_acted(self) -> bool:
        """True if a tool that is not safe to repeat may have run."""
        return _contains(self.checkpoints, ToolCallStarted)

    def may_have_run(self, call: Block) -> bool:
        """Return whether an earlier call of this tool with these arguments was interrupted."""
        interrupted_ids: set[str] = set()
        for observed in self.observed:
            if observed.no_result is NoResult.MAY_HAVE_RUN:
                interrupted_ids.add(observed.tool_use_id)
        if not interrupted_ids:
            return False
        for reply in self.replies:
            for earlier in find_calls(reply):
                if earlier["id"] in interrupted_ids and is_same_call(earlier, call):
                    return True
        return False

    def has_visible_result_of_equal_call(self, call: Block, *, counts_errors: bool) -> bool:
        """Return whether requests show a result of an earlier call of this tool with these
        arguments. A cleared result does not count, and the text for a call that did not run does
        not count either.

        Args:
            counts_errors: True if an error counts as a result.
        """
        cleared_ids = self.cleared
        for observed in self.find_results_of_equal_calls(call):
            is_result = counts_errors or not observed.is_error
            if is_result and observed.tool_use_id not in cleared_ids:
                return True
        return False

    def find_errors_of_equal_calls(self, call: Block) -> set[str]:
        """Return the errors of earlier calls of this tool with these arguments, also cleared
        errors.
        """
        return {item.text for item in self.find_results_of_equal_calls(call) if item.is_error}

    def find_results_of_equal_calls(self, call: Block) -> list[ToolObserved]:
        """Return the results of earlier calls of this tool with these arguments, oldest first.
        Cleared results and errors are included; texts for calls that did not run are not.
        """
        return [item for item in self._find_answers_to_equal_calls(call) if item.no_result is None]

    def is_text_visible_for_equal_call(self, call: Block, text: str) -> bool:
        """Return whether requests show this text for an earlier call of this tool with these
        arguments. It may be the text for a call that did not run.
        """
        return self._is_visible(text, self._find_answers_to_equal_calls(call))

    def is_text_visible(self, text: str) -> bool:
        """Return whether requests show this text for an earlier call of any tool."""
        return self._is_visible(text, self.observed)

    def _is_visible(self, text: str, answers: Iterable[ToolObserved]) -> bool:
        """Return whether one of these answers has this text and was not cleared."""
        cleared_ids = self.cleared
        return any(
            answer.text == text and answer.tool_use_id not in cleared_ids for answer in answers
        )

    def _find_answers_to_equal_calls(self, call: Block) -> list[ToolObserved]:
        """Return the results of earlier calls of this tool with these arguments, and the texts
        for such calls that did not run.
        """
        calls_by_id: dict[str, Block] = {}
        answers: list[ToolObserved] = []
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied):
                for earlier in find_calls(checkpoint):
                    calls_by_id[earlier["id"]] = earlier
            elif isinstance(checkpoint, ToolObserved):
                answered_call = calls_by_id.get(checkpoint.tool_use_id)
                if answered_call is not None and is_same_call(answered_call, call):
                    answers.append(checkpoint)
        return answers

    @property
    def observed(self) -> list[ToolObserved]:
        """Results of all calls, oldest first."""
        return [item for item in self.checkpoints if isinstance(item, ToolObserved)]

    @property
    def cleared(self) -> set[str]:
        """Ids of the calls whose results requests no longer show."""
        ids: set[str] = set()
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ContextCleared | ContextCompacted):
                ids.update(checkpoint.tool_use_ids)
        return ids

    @property
    def is_just_cleared(self) -> bool:
        """True if the loop cleared results, or turns were left out, after the last reply. The
        provider's own clearings are in the tokens of the reply.
        """
        for checkpoint in self.since_reply:
            if isinstance(checkpoint, ContextCleared) and not checkpoint.by_provider:
                return True
        return _contains(self.since_reply, ContextCompacted)

    @property
    def compaction(self) -> ContextCompacted | None:
        """The last summary in place of earlier turns, or None."""
        for checkpoint in reversed(self.checkpoints):
            if isinstance(checkpoint, ContextCompacted):
                return checkpoint
        return None

    @property
    def _begin(self) -> int:
        """Index of the first checkpoint that requests show as a turn."""
        for index in range(len(self.checkpoints), 0, -1):
            if isinstance(self.checkpoints[index - 1], ContextCompacted):
                return index
        return 0

    @property
    def shown_replies(self) -> list[ModelReplied]:
        """Replies since the last compaction, oldest first."""
        return [item for item in self.checkpoints[self._begin :] if isinstance(item, ModelReplied)]

    @property
    def is_summarizing(self) -> bool:
        """True if the model was asked for a summary, and has not replied yet."""
        return _asks_for_summary(self.since_reply)

    @property
    def has_summary(self) -> bool:
        """True if the last reply is the reply to a request for a summary."""
        reply = self.last_reply
        if reply is None:
            return False
        before = self.checkpoints[: len(self.checkpoints) - len(self.since_reply) - 1]
        return _asks_for_summary(Conversation(self.opening, before).since_reply)

    @property
    def summary_requests(self) -> int:
        """Number of requests for a summary since the last compaction."""
        total = 0
        for checkpoint in self.checkpoints[self._begin :]:
            total += _has_reason(checkpoint, PromptReason.SUMMARY)
        return total

    @property
    def call_names(self) -> dict[str, str]:
        """Names of the calls of our tools, by their ids: `TOOL#NUMBER`. NUMBER counts the calls
        of that tool in this handoff, from 1.
        """
        names: dict[str, str] = {}
        counts = Counter[str]()
        for block in self._replied_blocks:
            if block.get("type") == "tool_use":
                tool = str(block.get("name"))
                counts[tool] += 1
                names[block["id"]] = f"{tool}#{counts[tool]}"
        return names

    @property
    def repeated_calls(self) -> int:
        """Number of calls that brought nothing new: look-ups, and calls that may not run."""
        return sum(observed.no_result in REPEATED for observed in self.observed)

    @property
    def open_reply(self) -> ModelReplied | None:
        """The last reply if the agent still has to act on it, else None.

        A reply is open if some of its calls have no result. A reply without calls is open
        until the agent prompts the model again, unless the provider paused the turn.
        """
        reply = self.last_reply
        if reply is None or _contains(
            self.since_reply, AgentPrompted | UserPrompted | ContextCompacted | ModelCallFailed
        ):
            return None
        if find_calls(reply):
            if self.unanswered:
                return reply
            return None
        if _is_pause(reply):
            return None
        return reply

    @property
    def is_paused(self) -> bool:
        """True if the provider has paused the model's turn. Only results of tools may follow
        such a turn.
        """
        reply = self.last_reply
        prompts = AgentPrompted | UserPrompted | ContextCompacted
        if reply is None or _contains(self.since_reply, prompts):
            return False
        if _is_pause(reply):
            return True
        return bool(find_calls(reply)) and bool(find_open_server_calls(reply.content))

    @property
    def called_names(self) -> list[str]:
        """Names of the tools that replies have called, each once, in the order of the first
        call.
        """
        names: list[str] = []
        for block in self._replied_blocks:
            name = str(block.get("name"))
            if block.get("type") in CALLS and name not in names:
                names.append(name)
        return names

    @property
    def has_server_calls(self) -> bool:
        """True if a reply has called a tool that the provider runs."""
        return any(block.get("type") in SERVER_CALLS for block in self._replied_blocks)

    @property
    def ids(self) -> set[str]:
        """Ids of all calls so far."""
        return set(list_ids(self._replied_blocks))

    @property
    def _replied_blocks(self) -> list[Block]:
        blocks: list[Block] = []
        for reply in self.replies:
            blocks += reply.content
        return blocks

    @property
    def repairs(self) -> int:
        """Number of answers that were sent back to the model as empty, invalid or too long."""
        return sum(
            _has_reason(
                checkpoint,
                PromptReason.EMPTY_ANSWER,
                PromptReason.INVALID_ANSWER,
                PromptReason.LONG_ANSWER,
            )
            for checkpoint in self.checkpoints
        )

    @property
    def shortenings(self) -> int:
        """Number of answers that were sent back to the model as too long."""
        return sum(_has_reason(item, PromptReason.LONG_ANSWER) for item in self.checkpoints)

    @property
    def cut_calls(self) -> int:
        """Number of calls of tools that were cut off at the length limit of a reply."""
        return sum(observed.no_result is NoResult.CUT_CALL for observed in self.observed)

    @property
    def _too_long_answers(self) -> set[int]:
        """Indexes of the replies of text alone that the model was told to give again, shorter."""
        indexes: set[int] = set()
        for index, (earlier, later) in enumerate(pairwise(self.checkpoints)):
            if isinstance(earlier, ModelReplied) and _has_reason(later, PromptReason.LONG_ANSWER):
                kinds = {block.get("type") for block in earlier.content}
                if kinds <= {"text", *THINKING}:
                    indexes.add(index)
        return indexes

    @property
    def is_told_last(self) -> bool:
        """True if the model was told that this is its last turn."""
        return any(_has_reason(item, PromptReason.LAST_TURN) for item in self.checkpoints)

    @property
    def is_told_empty(self) -> bool:
        """True if the model was told that its last answer is empty."""
        return any(_has_reason(item, PromptReason.EMPTY_ANSWER) for item in self.since_reply)

    @property
    def calls_after_last_turn(self) -> int:
        """Number of replies with calls of tools after the model was told that it can call no
        more. Some servers ignore the request for a reply without calls.
        """
        total = 0
        is_told = False
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                is_told = is_told or checkpoint.reason is PromptReason.LAST_TURN
            elif isinstance(checkpoint, ModelReplied):
                total += is_told and bool(find_calls(checkpoint))
        return total

    def only_repeats_prompts(self, text: str) -> bool:
        """Return whether each line of a text is a copy. Its original is a message of this agent to
        the model, or a line about a call that was not run. Such a text is not work. Words that a
        message quotes do not count, because they are the model's own.
        """
        prompts = {CUT_CALL, MAY_HAVE_RUN, SAME_CALL, SAME_RESULT}
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                prompts.add(_without_quotes(checkpoint.text))
        lines = [_without_quotes(line) for line in text.splitlines() if line.strip()]
        for line in lines:
            if not any(_is_copy(line, prompt) for prompt in prompts):
                return False
        return bool(lines)

    @property
    def drafts(self) -> list[str]:
        """Final texts of all replies that may hold work, newest first."""
        drafts: list[str] = []
        for reply in reversed(self.replies):
            text = get_final_text(reply.content)
            if text.strip() and not self.only_repeats_prompts(text):
                drafts.append(text)
        return drafts

    def with_room_for(self, observed: ToolObserved) -> ToolObserved:
        """Return the result without the images that exceed `MAX_IMAGES_A_REQUEST` or
        `MAX_IMAGE_CHARS` in this conversation.
        """
        if not observed.images:
            return observed
        visible_images = list[ObservedImage]()
        cleared_ids = self.cleared
        for earlier in self.observed:
            if earlier.tool_use_id not in cleared_ids:
                visible_images.extend(earlier.images or ())
        kept_images = list[ObservedImage]()
        chars = sum(len(image.data) for image in visible_images)
        for image in observed.images:
            fits = chars + len(image.data) <= MAX_IMAGE_CHARS
            if fits and len(visible_images) + len(kept_images) < MAX_IMAGES_A_REQUEST:
                kept_images.append(image)
                chars += len(image.data)
        if len(kept_images) == len(observed.images):
            return observed
        text = f"{observed.text}\n{NO_ROOM_FOR_IMAGE}".strip()
        return observed.model_copy(update={"text": text, "images": tuple(kept_images) or None})

    def find_source(self, call_id: str, handoff: AgentHandoff) -> str | None:
        """Return the name under which the result of a call is cited:
        `tool:STEP.ATTEMPT/TOOL#NUMBER`. None: no reply has this call.
        """
        name = self.call_names.get(call_id)
        if name is None:
            return None
        return f"tool:{handoff.step_id}.{handoff.attempt}/{name}"

    @property
    def without_summary_request(self) -> Conversation:
        """The conversation without the request for a summary that has no reply yet. A clearing
        after the request stays: the server has refused the request as too long.
        """
        for index in range(len(self.checkpoints) - 1, -1, -1):
            checkpoint = self.checkpoints[index]
            if _has_reason(checkpoint, PromptReason.SUMMARY):
                later = self.checkpoints[index + 1 :]
                return Conversation(self.opening, (*self.checkpoints[:index], *later))
        return self

    def _find_signed_summary(self, model: str) -> Block | None:
        """Return the block with the last summary, if the provider wrote it with this model."""
        if self.compaction is None or not self.compaction.by_provider:
            return None
        reply = Conversation(self.opening, self.checkpoints[: self._begin]).last_reply
        if reply is None or reply.is_from_another(model):
            return None
        return find_provider_block(reply.content)

    def build_messages_for(
        self, model: str, *, adopts_block: bool = False
    ) -> tuple[MessageParam, ...]:
        """Return the messages for a request to this model. They leave out the thinking of other
        models, because its signature belongs to the model that wrote it.

        Args:
            adopts_block: True if the provider takes its own summary back as a signed block. False:
                the summary is a text.
        """
        checkpoints: list[Checkpoint] = []
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied) and checkpoint.is_from_another(model):
                checkpoints.append(_without_thinking(checkpoint))
            else:
                checkpoints.append(checkpoint)
        signed_block = self._find_signed_summary(model) if adopts_block else None
        return Conversation(self.opening, tuple(checkpoints))._build_messages(signed_block)

    @property
    def messages(self) -> tuple[MessageParam, ...]:
        """The conversation in the form of the Messages API: roles alternate, and the results
        of calls come first in the next message.

        A paused turn keeps its unfinished calls, so that the provider continues it. An answer that
        was too long is left out: the model would repeat it, and each turn would pay for it.
        """
        return self._build_messages(None)

    def _build_messages(self, signed_block: Block | None) -> tuple[MessageParam, ...]:
        """Return the messages.

        Args:
            signed_block: block of the provider with the summary; None: the summary is a text.
        """
        too_long = self._too_long_answers
        cleared_ids, names = self.cleared, self.call_names
        begin = self._begin
        first = self._build_first_blocks(begin, signed_block)
        messages: list[MessageParam] = [{"role": "user", "content": first}]
        for index, checkpoint in enumerate(self.checkpoints[begin:], begin):
            match checkpoint:
                case ModelReplied() if index not in too_long:
                    add_blocks(messages, "assistant", build_sendable_blocks(checkpoint.content))
                case ToolObserved() if checkpoint.tool_use_id in cleared_ids:
                    name = names.get(checkpoint.tool_use_id, "")
                    add_blocks(messages, "user", [build_cleared_result_block(checkpoint, name)])
                case ToolObserved():
                    add_blocks(messages, "user", [build_tool_result_block(checkpoint)])
                case AgentPrompted():
                    add_blocks(messages, "user", [{"type": "text", "text": checkpoint.text}])
                case UserPrompted():
                    add_blocks(messages, "user", [build_user_message_block(checkpoint)])
                case ModelReplied() | ToolCallStarted() | ModelCallFailed():
                    pass
                case ContextCleared() | ContextCompacted():
                    pass
                case BatchIntended() | BatchCreated() | BatchClosed():
                    pass
        return tuple(
            sort_results_first(without_unfinished_calls(messages, is_paused=self.is_paused))
        )

    def _build_first_blocks(self, begin: int, signed_block: Block | None) -> list[Block]:
        """Return the blocks of the opening message. After a compaction, the summary and all
        earlier messages of users follow them. A block of the provider comes first: the provider
        ignores everything before it.

        Args:
            begin: see `_begin`.
            signed_block: see `_build_messages`.
        """
        blocks = list(self.opening["content"])
        if signed_block is not None:
            blocks.insert(0, signed_block)
        if self.compaction is not None:
            summary = build_summary_block(self.compaction, has_summary=signed_block is not None)
            blocks += [summary] if summary else []
        for checkpoint in self.checkpoints[:begin]:
            if isinstance(checkpoint, UserPrompted):
                blocks.append(build_user_message_block(checkpoint))
        return blocks


def _is_copy(line: str, prompt: str) -> bool:
    """Return whether a line is in a message to the model, or is the whole message with small
    changes. A weak model copies its instructions.
    """
    if len(line) < MIN_COPIED_CHARS:
        return False
    if line in prompt:
        return True
    shorter, longer = sorted((len(line), len(prompt)))
    least_common = COPIED * (shorter + longer) / 2
    if longer > MAX_COMPARED_CHARS or shorter < least_common:
        return False
    if (Counter(line) & Counter(prompt)).total() < least_common:
        return False
    return SequenceMatcher(None, line, prompt, autojunk=False).ratio() >= COPIED


def _without_thinking(reply: ModelReplied) -> ModelReplied:
    other_blocks: list[Block] = []
    for block in reply.content:
        if block.get("type") not in THINKING:
            other_blocks.append(block)
    return reply.model_copy(update={"content": tuple(other_blocks)})


def _asks_for_summary(checkpoints: Sequence[Checkpoint]) -> bool:
    """Return whether the last message of the agent in these checkpoints asks for a summary that
    no checkpoint has taken.
    """
    for checkpoint in reversed(checkpoints):
        if isinstance(checkpoint, ContextCompacted):
            return False
        if isinstance(checkpoint, AgentPrompted):
            return checkpoint.reason is PromptReason.SUMMARY
    return False


def _has_reason(checkpoint: Checkpoint, *reasons: PromptReason) -> bool:
    """Return whether the agent loop wrote to the model for one of these reasons."""
    return isinstance(checkpoint, AgentPrompted) and checkpoint.reason in reasons


def _contains(checkpoints: Iterable[Checkpoint], kind: type | UnionType) -> bool:
    return any(isinstance(checkpoint, kind) for checkpoint in checkpoints)


def is_same_call(first: Block, second: Block) -> bool:
    """Return whether two calls have the same tool and the same arguments."""
    has_same_name = first.get("name") == second.get("name")
    return has_same_name and first.get("input") == second.get("input")


def find_calls(reply: ModelReplied) -> list[Block]:
    """Return the calls of our tools in a reply."""
    calls: list[Block] = []
    for block in reply.content:
        if block.get("type") == "tool_use":
            calls.append(block)
    return calls


def _is_pause(reply: ModelReplied) -> bool:
    """Return whether the provider paused a turn that used the provider's own tools.

    A conversation may end with such a reply. The API refuses any other reply of the model at
    the end of a conversation.
    """
    if reply.stop_reason != "pause_turn":
        return False
    for block in reply.content:
        kind = str(block.get("type"))
        if kind in SERVER_CALLS or kind.endswith("_tool_result"):
            return True
    return False


def _without_quotes(text: str) -> str:
    """Return a text without the words in quotation marks, and with single spaces."""
    return _QUOTED.sub('""', " ".join(text.split()))


def get_final_text(content: Iterable[Block]) -> str:
    """Return the final text: all text after the last block of another type, such as a
    server-side search. If that text is blank, return all text.
    """
    texts: list[str] = []
    tail: list[str] = []
    for block in content:
        if block.get("type") == "text":
            text = str(block.get("text", ""))
            texts.append(text)
            tail.append(text)
        else:
            tail = []
    final_text = "".join(tail)
    if final_text.strip():
        return final_text
    return "".join(texts)


def _find_decliner(checkpoint: Checkpoint) -> str | None:
    """Return the model that declined to answer, while another one may answer. None: the checkpoint
    is another one.
    """
    if isinstance(checkpoint, ModelCallFailed) and checkpoint.declined:
        return checkpoint.requested_model
    return None
