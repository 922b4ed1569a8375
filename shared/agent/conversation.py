"""The conversation of one handoff, as the model sees it, and the ids of its tool calls.

Some servers write tool names and call ids that the Messages API refuses when the client sends
them back in the next turn.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from types import UnionType
from typing import Any

from handoff_queue.shared.agent.summary_messages import (
    is_summary_request,
    provider_block_in,
    summary_block,
)
from handoff_queue.shared.agent.tool_calls import (
    CUT_CALL,
    MAY_HAVE_RUN,
    NOT_OF_THE_TOOL,
    REPEATED,
    TRY_OTHERWISE,
    UNKNOWN_TOOL,
)
from handoff_queue.shared.agent.untrusted_text import escape_tags
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
    ObservedImage,
    ToolCallStarted,
    ToolObserved,
    UserPrompted,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import COMPACTION, Block, MessageParam
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of the blocks that call a tool. `tool_use` calls our tool; the provider runs the others."""
UNNAMED = "unnamed_tool"
"""Replacement for a tool name without a usable character."""
_MAX_NAME_CHARS = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_-]+")
_QUOTED = re.compile(r'"[^"]*"')


LAST_TURN = (
    "This is your last turn: you can call no more tools. Answer now, from the results so far."
)
"""It asks for no length, because `TOO_LONG` may come before it."""
UNUSABLE = "Your answer cannot be used: "
TOO_LONG = "Your answer was cut off because it was too long."
"""Beginning of `too_long_prompt`."""
MIN_NAMED_WORDS = 50
"""A smaller number of words is not named, because the server did not report the tokens."""
FROM_THE_USER = (
    "A message from the person who runs this job. Treat it like your task, and follow it from now"
    " on:"
)
EMPTY = f"{UNUSABLE}it is empty."
MIN_COPIED_CHARS = 20
"""Characters of the shortest line that counts as a copy of a message to the model."""
COPIED = 0.9
"""Least similarity of a copy, from 0 to 1. Copies of SmolLM2 with one other word have 0.96."""
MAX_COMPARED_CHARS = 500
"""Characters of the longest message whose near copies are refused. The time of a comparison may
grow with the third power of the length: two repetitive texts of 900 characters take 3 s.
"""
CLEARED = "[cleared: {chars} characters; read_result shows {name} again]"
"""Text of a result that requests no longer show."""
_THINKING = ("thinking", "redacted_thinking")
_OF_USERS = ("tool_result", "image", "document")
"""Blocks that the Messages API refuses in a message of the model. Some servers write them."""
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
MAX_IMAGES_A_REQUEST = 20
"""Images in one conversation. With more, the Messages API takes only images of at most 2,000
pixels a side.
"""
MAX_IMAGE_CHARS = 10_000_000
"""Characters of base64 in one conversation. Redis stores them, and each request of the
conversation carries them.
"""
NO_ROOM_FOR_IMAGE = "[an image is left out: this conversation holds as many images as it can]"


def too_long_prompt(output_tokens: int, advice: str = "") -> str:
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


def ids_in(content: Iterable[Block]) -> list[str]:
    """Return the ids of the calls in these blocks."""
    ids: list[str] = []
    for block in content:
        if block.get("type") in CALLS:
            ids.append(str(block.get("id")))
    return ids


def with_valid_calls(content: Iterable[Block], taken: Set[str]) -> tuple[Block, ...]:
    """Return the blocks with valid tool names, and with call ids that are valid and unique.

    A valid and unique id stays as it is. Any other id becomes a hash of the old one. The
    result of a provider's tool gets the id of its call, also if the call is in an earlier
    reply.

    Args:
        content: blocks of one reply.
        taken: ids of all calls in earlier replies.
    """
    used = set(taken)
    renamed: dict[str, str] = {}
    blocks = []
    for block in content:
        kind = str(block.get("type"))
        if kind in CALLS:
            old = _text(block.get("id"))
            new = _free_id(old, kind, used)
            used.add(new)
            renamed[old] = new
            blocks.append({**block, "id": new, "name": _valid_name(block.get("name"))})
        elif kind.endswith("_tool_result"):
            old = _text(block.get("tool_use_id"))
            if old in renamed:
                new = renamed[old]
            elif _ID.fullmatch(old):
                new = old
            else:
                new = _make_block_id(old, kind, 0)
            blocks.append({**block, "tool_use_id": new})
        else:
            blocks.append(block)
    return tuple(blocks)


def _free_id(old: str, kind: str, used: Set[str]) -> str:
    if _ID.fullmatch(old) and old not in used:
        return old
    number = 0
    while (new := _make_block_id(old, kind, number)) in used:
        number += 1
    return new


def _make_block_id(old: str, kind: str, number: int) -> str:
    """Return a valid id: the provider's prefix for this type of block, and a hash of the old
    id. Different numbers give different ids.
    """
    prefixes = {"tool_use": "toolu", "mcp_tool_use": "mcptoolu", "mcp_tool_result": "mcptoolu"}
    digest = hashlib.sha256(f"{number}:{old}".encode()).hexdigest()
    return f"{prefixes.get(kind, 'srvtoolu')}_{digest[:24]}"


def _valid_name(name: Any) -> str:
    valid = _UNUSABLE.sub("_", _text(name).strip())[:_MAX_NAME_CHARS]
    if valid.strip("_-"):
        return valid
    return UNNAMED


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The opening message and the checkpoints after it. `plus` returns a longer conversation.
    Every property is computed from the checkpoints alone.
    """

    opening: MessageParam
    checkpoints: tuple[Checkpoint, ...] = ()

    def plus(self, *checkpoints: Checkpoint) -> Conversation:
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
            elif (name := _name_if_declined(checkpoint)) is not None:
                replies[name] += 1
        return dict(replies)

    @property
    def declined_by(self) -> list[str]:
        """Names of the models that declined to answer, in the order of their replies."""
        names: dict[str, None] = {}
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied) and checkpoint.stop_reason == "refusal":
                names[checkpoint.model] = None
            elif (name := _name_if_declined(checkpoint)) is not None:
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
                for call in calls_of(checkpoint):
                    names[call["id"]] = str(call.get("name"))
            elif isinstance(checkpoint, ToolObserved) and checkpoint.text not in NOT_OF_THE_TOOL:
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
        answered: set[str] = set()
        for checkpoint in self.since_reply:
            if isinstance(checkpoint, ToolObserved):
                answered.add(checkpoint.tool_use_id)
        unanswered: list[Block] = []
        for call in calls_of(reply):
            if call["id"] not in answered:
                unanswered.append(call)
        return unanswered

    @property
    def started(self) -> set[str]:
        """Ids of the last reply's calls that have started and are not safe to repeat."""
        started_ids: set[str] = set()
        for checkpoint in self.since_reply:
            if isinstance(checkpoint, ToolCallStarted):
                started_ids.add(checkpoint.tool_use_id)
        return started_ids

    @property
    def has_acted(self) -> bool:
        """True if a tool that is not safe to repeat may have run."""
        return _contains(self.checkpoints, ToolCallStarted)

    def may_have_run(self, call: Block) -> bool:
        """Return whether an earlier call of this tool with these arguments was interrupted."""
        interrupted_ids: set[str] = set()
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ToolObserved) and checkpoint.text == MAY_HAVE_RUN:
                interrupted_ids.add(checkpoint.tool_use_id)
        if not interrupted_ids:
            return False
        for reply in self.replies:
            for earlier in calls_of(reply):
                if earlier["id"] in interrupted_ids and is_same_call(earlier, call):
                    return True
        return False

    def has_result_of(self, call: Block, *, or_error: bool) -> bool:
        """Return whether requests show a result of an earlier call of this tool with these
        arguments.

        Args:
            or_error: True if an error counts as a result.
        """
        cleared = self.cleared
        for observed in self.results_of(call):
            is_result = or_error or not observed.is_error
            if is_result and observed.tool_use_id not in cleared:
                return True
        return False

    def errors_of(self, call: Block) -> set[str]:
        """Return the errors of earlier calls of this tool with these arguments."""
        return {observed.text for observed in self.results_of(call) if observed.is_error}

    def results_of(self, call: Block) -> list[ToolObserved]:
        """Return the results of earlier calls of this tool with these arguments."""
        return [
            item for item in self._results_of_equal_calls(call) if item.text not in NOT_OF_THE_TOOL
        ]

    def shows_result_of(self, call: Block, text: str) -> bool:
        """Return whether requests show this text as the result of an earlier call of this tool
        with these arguments.
        """
        cleared = self.cleared
        for observed in self._results_of_equal_calls(call):
            if observed.text == text and observed.tool_use_id not in cleared:
                return True
        return False

    def _results_of_equal_calls(self, call: Block) -> list[ToolObserved]:
        """Return the results of earlier calls of this tool with these arguments, and the texts
        for such calls that did not run.
        """
        called: dict[str, Block] = {}
        observed: list[ToolObserved] = []
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, ModelReplied):
                for earlier in calls_of(checkpoint):
                    called[earlier["id"]] = earlier
            elif isinstance(checkpoint, ToolObserved):
                answered = called.get(checkpoint.tool_use_id)
                if answered is not None and is_same_call(answered, call):
                    observed.append(checkpoint)
        return observed

    def has_result(self, text: str) -> bool:
        """Return whether requests show this text as the result of an earlier call."""
        cleared = self.cleared
        for observed in self.observed:
            if observed.text == text and observed.tool_use_id not in cleared:
                return True
        return False

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
        if reply is None or reply.stop_reason == "refusal":
            return False
        before = self.checkpoints[: len(self.checkpoints) - len(self.since_reply) - 1]
        return _asks_for_summary(Conversation(self.opening, before).since_reply)

    @property
    def summary_requests(self) -> int:
        """Number of requests for a summary since the last compaction."""
        total = 0
        for checkpoint in self.checkpoints[self._begin :]:
            total += isinstance(checkpoint, AgentPrompted) and is_summary_request(checkpoint.text)
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
        total = 0
        for checkpoint in self.checkpoints:
            total += isinstance(checkpoint, ToolObserved) and checkpoint.text in REPEATED
        return total

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
        if calls_of(reply):
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
        return bool(calls_of(reply)) and bool(_open_server_calls(reply.content))

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
        return any(block.get("type") in _SERVER_CALLS for block in self._replied_blocks)

    @property
    def ids(self) -> set[str]:
        """Ids of all calls so far."""
        return set(ids_in(self._replied_blocks))

    @property
    def _replied_blocks(self) -> list[Block]:
        blocks: list[Block] = []
        for reply in self.replies:
            blocks += reply.content
        return blocks

    @property
    def repairs(self) -> int:
        """Number of answers that were sent back to the model as invalid or too long."""
        total = 0
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                total += checkpoint.text.startswith((UNUSABLE, TOO_LONG))
        return total

    @property
    def shortenings(self) -> int:
        """Number of answers that were sent back to the model as too long."""
        total = 0
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                total += checkpoint.text.startswith(TOO_LONG)
        return total

    @property
    def cut_calls(self) -> int:
        """Number of calls of tools that were cut off at the length limit of a reply."""
        return sum(observed.text == CUT_CALL for observed in self.observed)

    @property
    def _too_long_answers(self) -> set[int]:
        """Indexes of the replies of text alone that the model was told to give again, shorter."""
        indexes: set[int] = set()
        for index, (earlier, later) in enumerate(pairwise(self.checkpoints)):
            if isinstance(earlier, ModelReplied) and isinstance(later, AgentPrompted):
                kinds = {block.get("type") for block in earlier.content}
                if later.text.startswith(TOO_LONG) and kinds <= {"text", *_THINKING}:
                    indexes.add(index)
        return indexes

    @property
    def is_told_last(self) -> bool:
        """True if the model was told that this is its last turn."""
        return AgentPrompted(text=LAST_TURN) in self.checkpoints

    @property
    def calls_after_last_turn(self) -> int:
        """Number of replies with calls of tools after the model was told that it can call no
        more. Some servers ignore the request for a reply without calls.
        """
        total = 0
        is_told = False
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                is_told = is_told or checkpoint.text == LAST_TURN
            elif isinstance(checkpoint, ModelReplied):
                total += is_told and bool(calls_of(checkpoint))
        return total

    def only_repeats_prompts(self, text: str) -> bool:
        """Return whether each line of a text is a copy of a message of this agent to the model,
        or of a line about a call that was not run. Such a text is not work. Words that a message
        quotes do not count, because they are the model's own.
        """
        prompted = {CUT_CALL, MAY_HAVE_RUN, *REPEATED}
        for checkpoint in self.checkpoints:
            if isinstance(checkpoint, AgentPrompted):
                prompted.add(_without_quotes(checkpoint.text))
        lines = [_without_quotes(line) for line in text.splitlines() if line.strip()]
        for line in lines:
            if not any(_is_copy(line, prompt) for prompt in prompted):
                return False
        return bool(lines)

    @property
    def drafts(self) -> list[str]:
        """Final texts of all replies that may hold work, newest first."""
        drafts: list[str] = []
        for reply in reversed(self.replies):
            text = text_of(reply.content)
            if text.strip() and not self.only_repeats_prompts(text):
                drafts.append(text)
        return drafts

    def with_room_for(self, observed: ToolObserved) -> ToolObserved:
        """Return the result without the images that exceed `MAX_IMAGES_A_REQUEST` or
        `MAX_IMAGE_CHARS` in this conversation.
        """
        if not observed.images:
            return observed
        stored = list[ObservedImage]()
        cleared = self.cleared
        for earlier in self.observed:
            if earlier.tool_use_id not in cleared:
                stored.extend(earlier.images or ())
        kept_images = list[ObservedImage]()
        chars = sum(len(image.data) for image in stored)
        for image in observed.images:
            fits = chars + len(image.data) <= MAX_IMAGE_CHARS
            if fits and len(stored) + len(kept_images) < MAX_IMAGES_A_REQUEST:
                kept_images.append(image)
                chars += len(image.data)
        if len(kept_images) == len(observed.images):
            return observed
        text = f"{observed.text}\n{NO_ROOM_FOR_IMAGE}".strip()
        return observed.model_copy(update={"text": text, "images": tuple(kept_images) or None})

    def source_of(self, call_id: str, handoff: AgentHandoff) -> str | None:
        """Return the name under which the result of a call is cited:
        `tool:STEP.ATTEMPT/TOOL#NUMBER`. None: no reply has this call.
        """
        name = self.call_names.get(call_id)
        if name is None:
            return None
        return f"tool:{handoff.step_id}.{handoff.attempt}/{name}"

    @property
    def without_summary_request(self) -> Conversation:
        """The conversation before the request for a summary that has no reply yet."""
        last = len(self.checkpoints)
        for index in range(last - 1, -1, -1):
            checkpoint = self.checkpoints[index]
            if isinstance(checkpoint, AgentPrompted) and is_summary_request(checkpoint.text):
                last = index
                break
        return Conversation(self.opening, self.checkpoints[:last])

    def _signed_summary(self, model: str) -> Block | None:
        """Return the block with the last summary, if the provider wrote it with this model."""
        if self.compaction is None or not self.compaction.by_provider:
            return None
        reply = Conversation(self.opening, self.checkpoints[: self._begin]).last_reply
        if reply is None or reply.is_from_another(model):
            return None
        return provider_block_in(reply.content)

    def messages_for(self, model: str, *, adopts_block: bool = False) -> tuple[MessageParam, ...]:
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
        signed = self._signed_summary(model) if adopts_block else None
        return Conversation(self.opening, tuple(checkpoints))._messages(signed)

    @property
    def messages(self) -> tuple[MessageParam, ...]:
        """The conversation in the form of the Messages API: roles alternate, and the results
        of calls come first in the next message.

        A paused turn keeps its unfinished calls, so that the provider continues it. An answer that
        was too long is left out: the model would repeat it, and each turn would pay for it.
        """
        return self._messages(None)

    def _messages(self, signed: Block | None) -> tuple[MessageParam, ...]:
        """Return the messages.

        Args:
            signed: block of the provider with the summary; None: the summary is a text.
        """
        too_long = self._too_long_answers
        cleared, names = self.cleared, self.call_names
        begin = self._begin
        first = self._first_blocks(begin, signed)
        messages: list[MessageParam] = [{"role": "user", "content": first}]
        for index, checkpoint in enumerate(self.checkpoints[begin:], begin):
            match checkpoint:
                case ModelReplied() if index not in too_long:
                    _add(messages, "assistant", _sendable(checkpoint.content))
                case ToolObserved() if checkpoint.tool_use_id in cleared:
                    name = names.get(checkpoint.tool_use_id, "")
                    _add(messages, "user", [_block_of_cleared_result(checkpoint, name)])
                case ToolObserved():
                    _add(messages, "user", [_result_block(checkpoint)])
                case AgentPrompted():
                    _add(messages, "user", [{"type": "text", "text": checkpoint.text}])
                case UserPrompted():
                    _add(messages, "user", [_user_block(checkpoint)])
                case ModelReplied() | ToolCallStarted() | ModelCallFailed():
                    pass
                case ContextCleared() | ContextCompacted():
                    pass
                case BatchIntended() | BatchCreated() | BatchClosed():
                    pass
        return tuple(
            _sort_results_first(_without_unfinished_calls(messages, is_paused=self.is_paused))
        )

    def _first_blocks(self, begin: int, signed: Block | None) -> list[Block]:
        """Return the blocks of the opening message. After a compaction, the summary and all
        earlier messages of users follow them. A block of the provider comes first: the provider
        ignores everything before it.

        Args:
            begin: see `_begin`.
            signed: see `_messages`.
        """
        blocks = list(self.opening["content"])
        if signed is not None:
            blocks.insert(0, signed)
        if self.compaction is not None:
            kept = summary_block(self.compaction, has_summary=signed is not None)
            blocks += [kept] if kept else []
        for checkpoint in self.checkpoints[:begin]:
            if isinstance(checkpoint, UserPrompted):
                blocks.append(_user_block(checkpoint))
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
    kept: list[Block] = []
    for block in reply.content:
        if block.get("type") not in _THINKING:
            kept.append(block)
    return reply.model_copy(update={"content": tuple(kept)})


def _asks_for_summary(checkpoints: Sequence[Checkpoint]) -> bool:
    """Return whether the last message of the agent in these checkpoints asks for a summary that
    no checkpoint has taken.
    """
    for checkpoint in reversed(checkpoints):
        if isinstance(checkpoint, ContextCompacted):
            return False
        if isinstance(checkpoint, AgentPrompted):
            return is_summary_request(checkpoint.text)
    return False


def _contains(checkpoints: Iterable[Checkpoint], kind: type | UnionType) -> bool:
    return any(isinstance(checkpoint, kind) for checkpoint in checkpoints)


def is_same_call(first: Block, second: Block) -> bool:
    """Return whether two calls have the same tool and the same arguments."""
    has_same_name = first.get("name") == second.get("name")
    return has_same_name and first.get("input") == second.get("input")


def calls_of(reply: ModelReplied) -> list[Block]:
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
        if kind in _SERVER_CALLS or kind.endswith("_tool_result"):
            return True
    return False


def _open_server_calls(content: Iterable[Block]) -> set[str]:
    """Return the ids of calls of the provider's own tools that have no later result in these
    blocks.
    """
    open_ids = set[str]()
    for block in content:
        if block.get("type") in _SERVER_CALLS:
            open_ids.add(str(block.get("id")))
        else:
            open_ids.discard(str(block.get("tool_use_id")))
    return open_ids


def _without_quotes(text: str) -> str:
    """Return a text without the words in quotation marks, and with single spaces."""
    return _QUOTED.sub('""', " ".join(text.split()))


def text_of(content: Iterable[Block]) -> str:
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


def _add(messages: list[MessageParam], role: str, blocks: Iterable[Block]) -> None:
    """Add the blocks to the last message if it has the same role, else add a message. Roles
    must alternate.
    """
    new = list(blocks)
    if not new:
        return
    if messages[-1]["role"] == role:
        messages[-1]["content"].extend(new)
    else:
        messages.append({"role": role, "content": new})


def _image_block(image: ObservedImage) -> Block:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _user_block(prompted: UserPrompted) -> Block:
    """Return the message of a user in a tag that its text cannot close."""
    inside = escape_tags(prompted.text)
    return {"type": "text", "text": f"{FROM_THE_USER}\n<message>{inside}</message>"}


def _result_block(observed: ToolObserved) -> Block:
    if observed.source:
        shown = f"[source: {observed.source}]\n{observed.text}"
    else:
        shown = observed.text
    content: str | list[Block] = shown
    if observed.images:
        content = []
        if shown.strip():
            content.append({"type": "text", "text": shown})
        content.extend(map(_image_block, observed.images))
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": observed.tool_use_id,
        "content": content,
    }
    if observed.is_error:
        return {**block, "is_error": True}
    return block


def _block_of_cleared_result(observed: ToolObserved, name: str) -> Block:
    """Return the note in place of a cleared result. The result is still a source."""
    note = CLEARED.format(chars=len(observed.text), name=name)
    return _result_block(observed.model_copy(update={"text": note, "images": None}))


def _sendable(content: Iterable[Block]) -> list[Block]:
    """Return the blocks of a reply in the form that the API takes back.

    The API refuses blank texts, arguments that are not an object (a cut call), thinking
    without its signature (also cut), and blocks of user messages. It refuses a message of
    thinking alone, so the list is empty then.
    """
    blocks = []
    for block in content:
        match block.get("type"):
            case "text" if not str(block.get("text", "")).strip():
                continue
            case "thinking" if not block.get("signature"):
                continue
            case kind if kind in _OF_USERS or kind == COMPACTION:
                continue  # a summary of the provider is the first block, or left out
            case "tool_use" if not isinstance(block.get("input"), dict):
                blocks.append({**block, "input": {}})
            case _:
                blocks.append(block)
    return _without_lone_thinking(blocks)


def _without_lone_thinking(blocks: list[Block]) -> list[Block]:
    """Return the blocks, or an empty list if all blocks are thinking."""
    for block in blocks:
        if block.get("type") not in _THINKING:
            return blocks
    return []


def _without_unfinished_calls(
    messages: list[MessageParam], *, is_paused: bool
) -> list[MessageParam]:
    """Drop calls of the provider's own tools that were cut off, and results without a call.
    The API refuses both.

    The last message of a paused turn keeps its unfinished calls: the provider continues them.
    """
    replied_blocks: list[Block] = []
    last_reply: list[Block] = []
    for message in messages:
        if message["role"] == "assistant":
            last_reply = message["content"]
            replied_blocks += last_reply
    unfinished = _open_server_calls(replied_blocks)
    if is_paused:
        unfinished -= _open_server_calls(last_reply)
    called: set[str] = set()
    kept_messages: list[MessageParam] = [messages[0]]
    for message in messages[1:]:
        blocks = message["content"]
        if message["role"] == "assistant":
            blocks = _drop_unpaired_blocks(blocks, unfinished, called)
        _add(kept_messages, message["role"], blocks)
    if kept_messages[-1]["role"] == "assistant":
        _strip_end(kept_messages[-1]["content"])
    return kept_messages


def _drop_unpaired_blocks(
    blocks: list[Block], unfinished: set[str], called: set[str]
) -> list[Block]:
    """Return the blocks without unfinished calls and without results of unknown calls. The
    list is empty if only thinking is left.

    Args:
        blocks: blocks of one reply.
        unfinished: ids of unfinished calls.
        called: ids of the calls in earlier replies. This adds the calls of these blocks.
    """
    kept_blocks = []
    for block in blocks:
        kind = str(block.get("type"))
        if kind in _SERVER_CALLS:
            if str(block.get("id")) in unfinished:
                continue
            called.add(str(block.get("id")))
        elif kind.endswith("_tool_result") and str(block.get("tool_use_id")) not in called:
            continue
        kept_blocks.append(block)
    return _without_lone_thinking(kept_blocks)


def _strip_end(blocks: list[Block]) -> None:
    """Remove white space at the end of the last text. The API refuses it at the end of a
    conversation.
    """
    if blocks[-1].get("type") == "text":
        blocks[-1] = {**blocks[-1], "text": str(blocks[-1]["text"]).rstrip()}


def _sort_results_first(messages: list[MessageParam]) -> list[MessageParam]:
    """Put results before any text, in the order of their calls. A resumed conversation then
    has the same bytes, although results arrive in any order.
    """
    for before, message in pairwise(messages):
        if message["role"] == "user":
            positions: dict[str, int] = {}
            for index, block in enumerate(before["content"]):
                if block.get("type") == "tool_use":
                    positions[block["id"]] = index
            end = len(before["content"])
            message["content"].sort(key=lambda block: _position(block, positions, end))
    return messages


def _position(block: Block, positions: Mapping[str, int], end: int) -> int:
    """Return the position of the block's call, or `end` if the block is not a result of a call."""
    return positions.get(block.get("tool_use_id", ""), end)


def error_of_decliner(model: str) -> str:
    """Return the error of a call that a model declined to answer, while another model is left."""
    return f"{model} declined to answer"


def _name_if_declined(checkpoint: Checkpoint) -> str | None:
    """Return the model of such a call. None: the checkpoint is another one."""
    if not isinstance(checkpoint, ModelCallFailed) or checkpoint.requested_model is None:
        return None
    if checkpoint.error != error_of_decliner(checkpoint.requested_model):
        return None
    return checkpoint.requested_model
