"""A Messages API request as the offline model reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.agent.claim_markers import find_sentences_by_claim
from handoff_queue.shared.agent.opening_message import BEFORE_NOTES
from handoff_queue.shared.agent.system_prompt import MARKDOWN_RULES, NOTE_RULES
from handoff_queue.shared.types.citation_markers import MARKER, split_claim_ids

_HEADING = re.compile(r"#{1,6}\s+(.+)")
_HEADER = re.compile(r'^\{"source": "(?:[^"\\]|\\.)+", "chars": \d+\}$', re.MULTILINE)
"""Line before the text of a document that is shown whole."""
_LISTED = re.compile(r"(.+?)(?: \([\d,]+ characters\)(?:: .*)?)?$")
"""Line of a document that is listed."""
_NOTE = re.compile(r"^\[([^\]\s]+)\] (.*)$", re.MULTILINE)
_STRING = re.compile(r'("(?:[^"\\]|\\.)*+")|".*')
"""A string, or a string without its end."""
_SOURCE = re.compile(r'(?:^|(?<!\\); )((?:[^"\\;]|\\.)+): "')
"""The source of the first quote of a note."""
_SCHEMA_IN_WORDS = "matches this JSON Schema: "
"""Words before the schema in a system prompt. `shared.providers.anthropic.request` writes them
if the server cannot enforce the schema.
"""


class RefusedRequest(Exception):
    """The request is invalid or has no offline answer. It gets status 400 with this message."""


@dataclass(frozen=True, slots=True)
class OfflineClaim:
    """A statement with its source and quotes."""

    id: str
    text: str
    source: str
    quotes: tuple[str, ...] = ()
    heading: str = ""
    """Heading under which a text states the claim."""


@dataclass(frozen=True, slots=True)
class Result:
    """One `<result>` of the handoff's context."""

    step: str
    status: str
    output: Any
    claims: tuple[OfflineClaim, ...]

    @property
    def text(self) -> str:
        """The output as text: Markdown, or JSON if it is not a string."""
        if not self.output or isinstance(self.output, str):
            return self.output or ""
        return json.dumps(self.output, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A tool call of an earlier turn. The result of a failed call is empty."""

    name: str
    input: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of a request on which the reply depends."""

    task: str
    results: tuple[Result, ...] = ()
    paths: tuple[str, ...] = ()
    """Paths of the documents that the handoff lists."""
    documents: tuple[tuple[str, str], ...] = ()
    """Paths and texts of the documents that the handoff shows whole."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that this turn may call."""
    calls: tuple[EarlierCall, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the final text."""
    output_format: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the output in the answer envelope. Empty: Markdown."""
    has_notes: bool = False
    """True if a Markdown answer ends with notes, see `shared.agent.system_prompt`."""
    has_claims: bool = False
    """True if the notes prove the statements of the answer."""

    @property
    def claims(self) -> list[OfflineClaim]:
        """The claims of all results."""
        claims: list[OfflineClaim] = []
        for result in self.results:
            claims += result.claims
        return claims

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> RequestParts:
        """Read the body of a request.

        Raises:
            RefusedRequest: a field is missing or has another type than in the API.
        """
        try:
            _check(request)
            return _read(request)
        except (AttributeError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise RefusedRequest(f"The request is malformed: {problem}") from error


def parse_json_lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a text with one object in a line. Other lines are skipped."""
    objects: list[dict[str, Any]] = []
    for line in text.splitlines():
        value = None
        if line.startswith("{"):
            value = _parse_json(line)
        if isinstance(value, dict):
            objects.append(value)
    return objects


def get_values(objects: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    """Return the values of a key in the objects that have it."""
    values: list[Any] = []
    for json_object in objects:
        if key in json_object:
            values.append(json_object[key])
    return values


def only_properties(values: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose keys are properties in a schema."""
    properties = schema.get("properties", {})
    return {key: value for key, value in values.items() if key in properties}


def iterate_objects(text: str, first_key: str) -> Iterator[dict[str, Any]]:
    """Yield the complete JSON objects in a text whose first key is `first_key`. The text
    around them may be cut off.
    """
    end = 0
    for match in re.finditer(rf'\{{\s*"{first_key}"', text):
        if match.start() < end:
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):  # a document may have thousands of brackets
            continue
        yield value


def parse_documents(text: str) -> tuple[list[tuple[str, str]], str]:
    """Return the path and the text of each document that is shown whole at the beginning of a
    text, and the rest of the text. See `shared.agent.prompt_documents.format_whole_texts`.
    """
    documents: list[tuple[str, str]] = []
    position = 0
    while True:
        header = _HEADER.match(text, position)
        if header is None:
            return documents, text[position:]
        value = json.loads(header[0])
        start = header.end() + 1
        end = start + value["chars"]
        documents.append((value["source"], text[start:end]))
        rest = text[end:]
        position = end + len(rest) - len(rest.lstrip())


def _check(request: Mapping[str, Any]) -> None:
    """Check the form of a request as the Messages API does.

    Raises:
        RefusedRequest: a field is missing or invalid, or calls and results do not match.
    """
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
        blocks = _get_blocks(message["content"])
        result_ids = _collect_values(blocks, "tool_result", "tool_use_id")
        if message["role"] == "user" and result_ids != open_calls:
            ids = ", ".join(sorted(result_ids ^ open_calls))
            raise RefusedRequest(
                f"messages.{index}: `tool_use` without `tool_use_id`, or the reverse: {ids}"
            )
        if message["role"] != "system":
            open_calls = _collect_values(blocks, "tool_use", "id")


def _collect_values(blocks: Iterable[Mapping[str, Any]], kind: str, key: str) -> set[str]:
    """Return the values of a key in all blocks of a type."""
    return {block[key] for block in blocks if block["type"] == kind}


def _read(request: Mapping[str, Any]) -> RequestParts:
    """Return what a valid request says."""
    system = _get_text(request.get("system") or "")
    opening = _get_text(request["messages"][0]["content"])
    tools = {tool["name"] for tool in request.get("tools") or ()}
    tool_choice = request.get("tool_choice") or {}
    if tool_choice.get("type") == "none":
        tools = set()
    material = _find_tag(_find_tag(opening, "documents"), "data")
    whole_documents, document_list = parse_documents(material)
    paths = [path for path, _ in whole_documents]
    for line in document_list.splitlines():
        match = _LISTED.match(line)
        if match:
            paths.append(match[1])
    return RequestParts(
        task=_find_tag(opening, "task") or opening.strip(),
        results=tuple(_iterate_results(opening)),
        paths=tuple(paths),
        documents=tuple(whole_documents),
        tools=frozenset(tools),
        calls=tuple(_iterate_calls(request["messages"])),
        schema=_find_schema(request, system),
        output_format=_parse_json(_find_tag(opening, "output_format")) or {},
        has_notes=MARKDOWN_RULES in system,
        has_claims=NOTE_RULES in system,
    )


def _find_schema(request: Mapping[str, Any], system: str) -> Mapping[str, Any]:
    """Return the schema of the final text, from the request or the system prompt, or `{}`."""
    output = request.get("output_config") or {}
    schema = (output.get("format") or {}).get("schema")
    _, is_in_words, text = system.rpartition(_SCHEMA_IN_WORDS)
    if schema is None and is_in_words:
        schema = _parse_json(text)
    if isinstance(schema, Mapping):
        return schema
    return {}


def _iterate_calls(messages: list[dict[str, Any]]) -> Iterator[EarlierCall]:
    """Yield the calls of tools in the messages, each with its result; '' without one."""
    blocks: list[dict[str, Any]] = []
    for message in messages:
        blocks += _get_blocks(message["content"])
    results: dict[str, str] = {}
    for block in blocks:
        if block["type"] == "tool_result" and not block.get("is_error"):
            results[block["tool_use_id"]] = _get_text(block.get("content") or "")
    for block in blocks:
        if block["type"] == "tool_use":
            yield EarlierCall(block["name"], block.get("input") or {}, results.get(block["id"], ""))


def _iterate_results(text: str) -> Iterator[Result]:
    """Yield the results in the opening message."""
    for before_end in text.split("</result>")[:-1]:
        begin = re.search(r"<result\b([^<>]*)>", before_end)
        if begin is None:
            continue
        inner = before_end[begin.end() :]
        attributes = dict(re.findall(r'\b(\w+)="([^"]*)"', begin[1]))
        data, _, behind = inner.partition(BEFORE_NOTES)
        data_text = _find_tag(f"{data}</data>", "data")
        output: Any = data_text
        if data_text.startswith(("{", "[")):
            output = _parse_json(data_text) or data_text
        step = attributes.get("step", "step")
        claims = tuple(_iterate_claims(_unescape_closing_tags(behind), step, data_text))
        yield Result(step, attributes.get("status", "ok"), output, claims)


def _iterate_claims(notes: str, step: str, output: str) -> Iterator[OfflineClaim]:
    """Yield the claims in the notes of a result. `shared.agent.opening_message` writes the notes.

    Args:
        notes: lines of the notes. The last one may be cut off.
        step: step of the result, for claims without a qualified id.
        output: text of the result. It has the texts of claims whose notes have none.
    """
    headings, sentences = _find_headings_by_marker(output), find_sentences_by_claim(output)
    for name, note in _NOTE.findall(notes):
        strings = [json.loads(string) for string in _STRING.findall(note) if string]
        source = ""
        if match := _SOURCE.search(note):
            source = json.loads(f'"{match[1]}"')
        text = sentences.get(name, "")
        if note.startswith('"') and strings:
            text = strings.pop(0)
        if not text or not (strings or note.endswith("no source")):
            continue
        claim_id = name if "." in name else f"{step}.{name}"
        yield OfflineClaim(claim_id, text, source, tuple(strings), headings.get(claim_id, ""))


def _find_headings_by_marker(output: str) -> dict[str, str]:
    """Return the heading above the first use of each marker."""
    headings: dict[str, str] = {}
    heading = ""
    for line in output.splitlines():
        match = _HEADING.match(line)
        if match:
            heading = match.group(1)
        for markers in MARKER.findall(line):
            for marker in split_claim_ids(markers):
                headings.setdefault(marker, heading)
    return headings


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _get_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    return []


def _get_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _find_tag(text: str, name: str) -> str:
    """Return the content of the first tag of this name, or "". The module
    `shared.agent.opening_message` writes `</` in the content as `<\\/`.
    """
    begin = re.search(rf"<{name}\b[^<>]*>", text)
    if begin is None:
        return ""
    content, end, _ = text[begin.end() :].partition(f"</{name}>")
    if not end:
        return ""
    return _unescape_closing_tags(content).strip()


def _unescape_closing_tags(text: str) -> str:
    return text.replace("<\\/", "</")
