"""A Messages-API request as the offline model understands it: the handoff's tags, the tools
offered, what was called so far.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.providers.offline.payloads import claims_and_output, json_in, text_of


class BadRequest(Exception):
    """What the real API answers with a 400; the message names the field."""


@dataclass(frozen=True, slots=True)
class KnownClaim:
    """A claim of another step; `id` is qualified: `step.c1`."""

    id: str
    text: str
    source: str
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One `<result>` of the context."""

    step: str
    status: str
    output: Any
    claims: tuple[KnownClaim, ...]

    @property
    def text(self) -> str:
        return (
            self.output
            if isinstance(self.output, str)
            else json.dumps(self.output, ensure_ascii=False)
            if self.output
            else ""
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an earlier turn, and what came back (None: nothing yet)."""

    name: str
    input: Mapping[str, Any]
    result: str | None
    is_error: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything that the answer depends on."""

    system: str
    task: str
    results: tuple[Result, ...] = ()
    feedback: tuple[str, ...] = ()
    documents: int | None = None
    """How many there are; None: not said."""
    paths: tuple[str, ...] = ()
    """The first of them."""
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Input schemas by name, of the tools that may be called in this turn."""
    must_call: str | None = None
    """The tool that tool_choice insists on."""
    parallel: bool = True
    calls: tuple[Call, ...] = ()
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the final text."""
    output_format: Mapping[str, Any] | None = None
    """JSON Schema of the envelope's output as the handoff has it: strict schemas lose their
    limits on the way.
    """
    last_answer: str | None = None
    """The final text that was not accepted, if this turn is a repair."""
    prompts: tuple[str, ...] = ()
    """What the loop said between the turns."""

    @classmethod
    def from_request(cls, asked: Any) -> Conversation:
        """Read a request's body.

        Raises:
            BadRequest: naming the field, as the API would.
        """
        _check(asked)
        messages = asked["messages"]
        first = text_of(messages[0]["content"])
        choice = asked.get("tool_choice") or {}
        tools = {
            tool["name"]: tool["input_schema"]
            for tool in asked.get("tools") or ()
            if "input_schema" in tool
        }
        system = text_of(asked.get("system") or "")
        return cls(
            system=system,
            task=_tag(first, "task") or first.strip(),
            results=_results(first),
            feedback=tuple(
                _plain(text)
                for text in re.findall(r"<feedback\b[^>]*>(.*?)</feedback>", first, re.DOTALL)
            ),
            documents=_document_count(first),
            paths=tuple(
                path for path in _tag(_tag(first, "documents"), "data").splitlines() if path.strip()
            ),
            tools={} if choice.get("type") == "none" else tools,
            must_call=_forced(choice, tools),
            parallel=not choice.get("disable_parallel_tool_use"),
            calls=_calls(messages),
            schema=_schema(asked, system),
            output_format=json_in(_tag(first, "output_format")),
            last_answer=next(
                (
                    text
                    for m in reversed(messages)
                    if m["role"] == "assistant" and (text := text_of(m["content"]).strip())
                ),
                None,
            ),
            prompts=tuple(
                text
                for m in messages[1:]
                if m["role"] != "assistant" and (text := text_of(m["content"]).strip())
            ),
        )


def _check(asked: Any) -> None:
    if not isinstance(asked, dict):
        raise BadRequest("The request body must be a JSON object")
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if name not in asked:
            raise BadRequest(f"{name}: Field required")
        if not isinstance(asked[name], kind) or isinstance(asked[name], bool):
            raise BadRequest(f"{name}: Input should be a valid {kind.__name__}")
    if asked["max_tokens"] < 1:
        raise BadRequest("max_tokens: Input should be greater than or equal to 1")
    if not asked["messages"]:
        raise BadRequest("messages: at least one message is required")
    _check_messages(asked["messages"])
    for index, tool in enumerate(asked.get("tools") or ()):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise BadRequest(f"tools.{index}.name: Field required")
    choice = asked.get("tool_choice") or {}
    if choice.get("type") in ("any", "tool") and not asked.get("tools"):
        raise BadRequest("tool_choice: may only be specified while providing tools")


def _check_messages(messages: list[Any]) -> None:
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in (
            "user",
            "assistant",
            "system",
        ):
            raise BadRequest(
                f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'"
            )
        content = message.get("content")
        if not isinstance(content, str | list):
            raise BadRequest(f"messages.{index}.content: Field required")
        blocks = (
            [block for block in content if isinstance(block, dict)]
            if isinstance(content, list)
            else []
        )
        answered = {
            block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"
        }
        if unknown := answered - open_calls:
            raise BadRequest(
                f"messages.{index}: unexpected `tool_use_id` in `tool_result` blocks: {', '.join(map(str, unknown))}"
            )
        if message["role"] == "user" and (missing := open_calls - answered):
            raise BadRequest(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks: {', '.join(sorted(missing))}"
            )
        if message["role"] != "system":
            open_calls = {str(block["id"]) for block in blocks if block.get("type") == "tool_use"}
    if messages[0]["role"] != "user":
        raise BadRequest("messages.0.role: the first message must use the `user` role")


def _tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}\b[^>]*>(.*?)</{name}>", text, re.DOTALL)
    return _plain(found.group(1)) if found else ""


def _plain(text: str) -> str:
    """What stood in a tag before its inner closing tags were defused (`shared.agent.prompt`)."""
    return text.replace("<\\/", "</").strip()


def _results(text: str) -> tuple[Result, ...]:
    found = []
    for attributes, inner in re.findall(r"<result\b([^>]*)>(.*?)</result>", text, re.DOTALL):
        named = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        step = named.get("step", "step")
        output, claims = claims_and_output(_tag(inner, "data") or inner)
        known = tuple(
            KnownClaim(
                claim["id"] if "." in claim["id"] else f"{step}.{claim['id']}",
                claim["text"],
                next((str(source.get("source", "")) for source in claim.get("sources") or ()), ""),
                tuple(str(source.get("quote", "")) for source in claim.get("sources") or ()),
            )
            for claim in claims
        )
        found.append(Result(step, named.get("status", "ok"), output, known))
    return tuple(found)


def _document_count(text: str) -> int | None:
    found = re.search(r'<documents\b[^>]*count="(\d+)"', text)
    return int(found.group(1)) if found else None


def _schema(asked: Mapping[str, Any], system: str) -> Mapping[str, Any] | None:
    """As `output_config.format` sends it; or in words, which is how a schema comes that cannot
    be enforced.
    """
    sent = ((asked.get("output_config") or {}).get("format") or {}).get("schema")
    said = system.rpartition("matches this JSON Schema: ")
    found = sent or (json_in(said[2]) if said[1] else None)
    return found if isinstance(found, Mapping) else None


def _forced(choice: Mapping[str, Any], tools: Mapping[str, Any]) -> str | None:
    if choice.get("type") == "tool":
        name = str(choice.get("name"))
        if name not in tools:
            raise BadRequest(f"tool_choice.name: no tool is called {name!r}")
        return name
    return next(iter(tools), None) if choice.get("type") == "any" else None


def _calls(messages: list[dict[str, Any]]) -> tuple[Call, ...]:
    blocks = [
        block
        for m in messages
        if isinstance(m["content"], list)
        for block in m["content"]
        if isinstance(block, dict)
    ]
    results = {
        block["tool_use_id"]: block for block in blocks if block.get("type") == "tool_result"
    }
    return tuple(
        Call(
            name=str(block.get("name")),
            input=block.get("input") or {},
            result=text_of(results[block["id"]].get("content") or "")
            if block["id"] in results
            else None,
            is_error=bool(results.get(block["id"], {}).get("is_error")),
        )
        for block in blocks
        if block.get("type") == "tool_use"
    )
