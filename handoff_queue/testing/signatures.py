"""Signatures on the thinking of a Messages-API server's replies, and a check that a client
sends it back unchanged.

A signature names its reply and the block's place among the reply's thinking blocks. A code
(HMAC) covers both, the thinking itself, and the kind of block that follows. So a block that
was changed, moved, left out or invented is noticed.

Thinking is tied to the model that wrote it. The API drops the thinking of a model that the
requested model cannot read, without an error. So a request to another model may leave it out:
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

from handoff_queue.testing.request_rules import (
    THINKING,
    Json,
    are_tool_results,
    get_blocks,
    is_server_call,
    is_server_result,
    merge_messages,
)


class Signatures:
    """The signatures of one server. Safe to use from many threads."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._count = 0
        self._needed: dict[str, set[tuple[str, frozenset[str]]]] = {}
        """Model of each reply with a tool call and the signatures of its thinking, by the call's
        id.
        """
        self._paused: set[str] = set()
        """Fingerprints of the last blocks of paused replies."""
        self._lock = threading.Lock()

    def sign(self, blocks: Sequence[Json], stop_reason: str | None, model: str) -> tuple[Json, ...]:
        """Return a reply's blocks with their thinking signed. Remember its tool calls and
        whether the turn is paused.

        Args:
            model: the requested model.
        """
        with self._lock:
            self._count += 1
            reply = self._count
        signed = list(map(dict, blocks))
        kinds = [*_list_kinds(signed), ""]
        total = sum(block.get("type") in THINKING for block in signed)
        place = 0
        signatures: set[str] = set()
        for index, block in enumerate(signed):
            if block.get("type") not in THINKING:
                continue
            place += 1
            following = _next_kind(kinds, index)
            token = f"{reply}.{place}.{total}"
            if block["type"] == "redacted_thinking":
                block["data"] = f"{token}.{self._compute_code(token, '', following)}"
                signatures.add(block["data"])
            else:
                block["signature"] = (
                    f"{token}.{self._compute_code(token, block['thinking'], following)}"
                )
                signatures.add(block["signature"])
        with self._lock:
            for block in signed:
                if block.get("type") == "tool_use":
                    needed = self._needed.setdefault(str(block.get("id")), set())
                    needed.add((model, frozenset(signatures)))
            if stop_reason == "pause_turn" and signed:
                self._paused.add(_compute_fingerprint(signed[-1]))
        return tuple(signed)

    def find_violations(self, request: Json) -> Iterator[str]:
        """Yield one line for each fault: changed, moved or missing thinking, and content after
        a paused turn.

        Args:
            request: a request without a violation of `request_rules`.
        """
        messages = merge_messages(request["messages"])
        last_assistant = None
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                last_assistant = message
                yield from self._check_thinking(place, message)
        for place, (message, following) in enumerate(pairwise(messages)):
            last = message["content"][-1]
            is_paused = (
                message["role"] == "assistant" and _compute_fingerprint(last) in self._paused
            )
            if is_paused and not are_tool_results(following["content"]):
                yield f"messages.{place + 1}: nothing can follow a paused turn"
        if last_assistant is not None:
            yield from self._check_kept_thinking(last_assistant, request["model"])

    def _check_thinking(self, place: int, message: Json) -> Iterator[str]:
        """Check that the thinking of each reply in this message is unchanged, complete and in
        order.
        """
        blocks = get_blocks(message)
        kinds = [*_list_kinds(blocks), ""]
        places_of: dict[int, list[int]] = {}
        total_of: dict[int, int] = {}
        for index, block in enumerate(blocks):
            if block["type"] not in THINKING:
                continue
            where = f"messages.{place}.content.{index}"
            parts = self._verify_signature(block, _next_kind(kinds, index))
            if parts is None:
                yield f"{where}: Invalid `signature` in `thinking` block"
            else:
                reply, block_place, total = parts
                places_of.setdefault(reply, []).append(block_place)
                total_of[reply] = total
        for reply, places in places_of.items():
            if places != list(range(1, total_of[reply] + 1)):
                yield (
                    f"messages.{place}: `thinking` blocks of a reply must be sent back complete and"
                    " in their order"
                )

    def _verify_signature(self, block: Json, following: str) -> tuple[int, int, int] | None:
        """Return the number of the block's reply, the block's place among the reply's
        thinking, and the number of thinking blocks in the reply. Return None if the signature
        is wrong.
        """
        is_redacted = block["type"] == "redacted_thinking"
        signature = str(block.get("data" if is_redacted else "signature", ""))
        token, _, code = signature.rpartition(".")
        if is_redacted:
            text = ""
        else:
            text = str(block.get("thinking", ""))
        # A paused reply may end with thinking. The block after it comes with the next reply.
        for kind in (following, ""):
            expected = self._compute_code(token, text, kind)
            if hmac.compare_digest(code.encode(), expected.encode()):
                reply, place, total = map(int, token.split("."))
                return reply, place, total
        return None

    def _check_kept_thinking(self, message: Json, model: str) -> Iterator[str]:
        """Check that the last assistant message holds the thinking of its calls, unless another
        model than the requested one wrote it.
        """
        sent_signatures: set[str] = set()
        for block in message["content"]:
            if block["type"] in THINKING:
                sent_signatures.add(str(block.get("data") or block.get("signature")))
        for block in message["content"]:
            if block["type"] == "tool_use":
                needed = self._needed.get(str(block.get("id")), set())
                if needed and not any(
                    writer != model or signatures <= sent_signatures
                    for writer, signatures in needed
                ):
                    yield (
                        f"messages: `thinking` before the call {block.get('id')} must be sent back"
                    )

    def _compute_code(self, token: str, text: str, following: str) -> str:
        words = json.dumps([token, text, following]).encode()
        return hmac.new(self._key, words, hashlib.sha256).hexdigest()[:32]


def _list_kinds(blocks: Sequence[Json]) -> list[str]:
    """Return the kind of each block; empty for blocks that a client may leave out: empty
    texts, and unfinished server-side calls.
    """
    kinds = []
    for block in blocks:
        kind = str(block.get("type"))
        is_empty = kind == "text" and not str(block.get("text", "")).strip()
        kinds.append("" if is_empty or is_server_call(block) else kind)
    return kinds


def _next_kind(kinds: list[str], index: int) -> str:
    for kind in kinds[index + 1 :]:
        if kind:
            return kind
    return ""


def _compute_fingerprint(block: Json) -> str:
    """Return a text that is the same for a block and for its copy that the client sends back."""
    if is_server_call(block) or is_server_result(block):
        return f"{block['type']}:{block.get('id') or block.get('tool_use_id')}"
    return f"{block.get('type')}:{str(block.get('text', '')).strip()}"
