"""A Messages API request as the offline model reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.types.citation_markers import MARKER

_HEADING = re.compile(r"#{1,6}\s+(.+)")
_SCHEMA_IN_WORDS = "matches this JSON Schema: "
"""How the adapter announces a schema that the API cannot enforce (`providers.anthropic.request`)."""


class RefusedRequest(Exception):
    """The request gets status 400. The message says why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement with its source."""

    id: str
    text: str
    source: str
    quotes: tuple[str, ...] = ()
    heading: str = ""
    """The heading under which the result states the claim."""


@dataclass(frozen=True, slots=True)
class Result:
    """One `<result>` of the context."""

    step: str
    status: str
    output: Any
    claims: tuple[Claim, ...]

    @property
    def text(self) -> str:
        if not self.output or isinstance(self.output, str):
            return self.output or ""
        return json.dumps(self.output, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an earlier turn, and its result. A failed call has an empty result."""

    name: str
    input: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything that the reply depends on."""

    task: str
    results: tuple[Result, ...] = ()
    paths: tuple[str, ...] = ()
    """The documents that the handoff lists."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that this turn may call."""
    calls: tuple[Call, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the final text."""
    output_format: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the output in the answer envelope. Empty: Markdown."""

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> Conversation:
        """Read the body of a request.

        Raises:
            RefusedRequest: a field is missing or has another type than in the API.
        """
        try:
            _check(request)
            return _read(request)
        except (AttributeError, KeyError, TypeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise RefusedRequest(f"The request is malformed: {what}") from error


def lines_of_json(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a brief, which has one object a line."""
    found = []
    for line in text.splitlines():
        value = None
        if line.startswith("{"):
            value = _loads(line)
        if isinstance(value, dict):
            found.append(value)
    return found


def objects_in(text: str, first_key: str) -> Iterator[dict[str, Any]]:
    """Yield the whole JSON objects that begin with a key. The text around them may be cut."""
    end = 0
    for found in re.finditer(rf'\{{\s*"{first_key}"', text):
        if found.start() < end:
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(text, found.start())
        except ValueError:
            continue
        yield value


def _check(request: Mapping[str, Any]) -> None:
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if name not in request:
            raise RefusedRequest(f"{name}: Field required")
        if not isinstance(request[name], kind) or isinstance(request[name], bool):
            raise RefusedRequest(f"{name}: Input should be a valid {kind.__name__}")
    if request["max_tokens"] < 1:
        raise RefusedRequest("max_tokens: Input should be greater than or equal to 1")
    if not request["messages"] or request["messages"][0]["role"] != "user":
        raise RefusedRequest("messages.0.role: the first message must use the `user` role")
    if (request.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise RefusedRequest("tool_choice: the offline model cannot be made to call a tool")
    open_calls: set[str] = set()
    for index, message in enumerate(request["messages"]):
        blocks = _blocks(message["content"])
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if message["role"] == "user" and results != open_calls:
            ids = ", ".join(sorted(results ^ open_calls))
            raise RefusedRequest(
                f"messages.{index}: `tool_use` without `tool_use_id`, or the reverse: {ids}"
            )
        if message["role"] != "system":
            open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}


def _read(request: Mapping[str, Any]) -> Conversation:
    system = _text_of(request.get("system") or "")
    opening = _text_of(request["messages"][0]["content"])
    tools = frozenset(tool["name"] for tool in request.get("tools") or ())
    if (request.get("tool_choice") or {}).get("type") == "none":
        tools = frozenset()
    documents = _tag(_tag(opening, "documents"), "data")
    return Conversation(
        task=_tag(opening, "task") or opening.strip(),
        results=tuple(_results(opening)),
        paths=tuple(path for path in documents.splitlines() if path.strip()),
        tools=tools,
        calls=tuple(_calls(request["messages"])),
        schema=_schema(request, system),
        output_format=_loads(_tag(opening, "output_format")) or {},
    )


def _schema(request: Mapping[str, Any], system: str) -> Mapping[str, Any]:
    output = request.get("output_config") or {}
    schema = (output.get("format") or {}).get("schema")
    in_words = system.rpartition(_SCHEMA_IN_WORDS)
    if schema is None and in_words[1]:
        schema = _loads(in_words[2])
    if isinstance(schema, Mapping):
        return schema
    return {}


def _calls(messages: list[dict[str, Any]]) -> Iterator[Call]:
    blocks = [block for message in messages for block in _blocks(message["content"])]
    results = {
        block["tool_use_id"]: _text_of(block.get("content") or "")
        for block in blocks
        if block["type"] == "tool_result" and not block.get("is_error")
    }
    for block in blocks:
        if block["type"] == "tool_use":
            yield Call(block["name"], block.get("input") or {}, results.get(block["id"], ""))


def _results(text: str) -> Iterator[Result]:
    for attributes, inner in re.findall(r"<result\b([^>]*)>(.*?)</result>", text, re.DOTALL):
        named = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        data = _tag(inner, "data")
        whole = _loads(data)
        if isinstance(whole, dict):
            output = whole.get("output")
        else:
            output = data
        if isinstance(output, str):
            headings = _headings_by_marker(output)
        else:
            headings = {}
        step = named.get("step", "step")
        claims = tuple(_claims(data, step, headings))
        yield Result(step, named.get("status", "ok"), output, claims)


def _claims(data: str, step: str, headings: Mapping[str, str]) -> Iterator[Claim]:
    for claim in objects_in(data, "id"):
        if not isinstance(claim.get("text"), str):
            continue
        if "." in claim["id"]:
            name = claim["id"]
        else:
            name = f"{step}.{claim['id']}"
        sources = claim.get("sources") or [{}]
        quotes = tuple(source.get("quote", "") for source in sources)
        yield Claim(
            name, claim["text"], sources[0].get("source", ""), quotes, headings.get(name, "")
        )


def _headings_by_marker(output: str) -> dict[str, str]:
    """Return the heading above the first use of each marker."""
    headings: dict[str, str] = {}
    heading = ""
    for line in output.splitlines():
        found = _HEADING.match(line)
        if found:
            heading = found.group(1)
        for markers in MARKER.findall(line):
            for marker in re.split(r"[,;]\s*", markers):
                headings.setdefault(marker, heading)
    return headings


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    return []


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _tag(text: str, name: str) -> str:
    """Return the content of a tag. `shared.agent.prompt` writes `</` in the content as `<\\/`."""
    found = re.search(rf"<{name}\b[^>]*>(.*?)</{name}>", text, re.DOTALL)
    if found:
        return found.group(1).replace("<\\/", "</").strip()
    return ""
