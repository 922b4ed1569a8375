"""A Messages-API server in front of the model.

It enforces the schema of `output_config.format` and of strict tools by a grammar, as the API
does. It streams, and counts tokens with the tokenizer of the model. Arguments of a tool that is
not strict are any JSON object.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from benchmarks.small_model.model_process import SmallModel
from handoff_queue.testing.messages_server import MessagesServer, lower_case_headers
from handoff_queue.testing.replies import Json, Reply
from handoff_queue.testing.request_rules import find_header_violations, find_violations, get_blocks

WINDOW_TOKENS = 8_192
MAX_CALLS = 4
"""Tool calls of a reply."""
PING_EVERY_S = 10.0
CALL, ANSWER, END = "<tool_call>", "<answer>", "<end>"
_TURN = "<|im_start|>{role}\n{text}<|im_end|>\n"


@dataclass(slots=True)
class Exchange:
    """A request and its reply."""

    request: Json
    blocks: list[Json] = field(default_factory=list)
    stop_reason: str = ""
    """Empty if the client left before the end."""
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0


class SmallModelServer(MessagesServer):
    """Serves the replies of the model in a `with` block."""

    raises = False

    def __init__(
        self, model: SmallModel, seed: int, max_output: int, log: Path | None = None
    ) -> None:
        """Bind the port.

        Args:
            seed: seed of all replies. The prompt is part of the seed of a reply.
            max_output: most tokens of a reply. A request may ask for fewer.
            log: file that gets each request with its reply as a line of JSON.
        """
        super().__init__(lambda _: Reply())
        self._model = model
        self._seed = seed
        self._max_output = max_output
        self._log = log
        self._lock = threading.Lock()
        self.exchanges: list[Exchange] = []

    def _respond(self, connection: BaseHTTPRequestHandler) -> None:
        body = connection.rfile.read(int(connection.headers.get("content-length") or 0))
        request = json.loads(body or b"{}")
        exchange = Exchange(request)
        with self._lock:
            self.exchanges.append(exchange)
        problems = [
            *find_header_violations(lower_case_headers(connection)),
            *find_violations(request),
        ]
        self.violations += problems
        prompt = "" if problems else build_prompt(request)
        exchange.input_tokens = self._model.count(prompt)
        room = WINDOW_TOKENS - exchange.input_tokens - 8
        if room < 1:
            problems = [
                f"prompt is too long: {exchange.input_tokens} tokens > {WINDOW_TOKENS} maximum"
            ]
        try:
            if problems:
                exchange.error = problems[0]
                _send_error(connection, problems[0])
            else:
                self._send_reply(connection, exchange, prompt, min(room, self._max_output))
        except (BrokenPipeError, ConnectionResetError):
            pass
        connection.close_connection = True
        exchange.took_s = time.monotonic() - exchange.began_s
        if self._log is not None:
            with self._lock, self._log.open("a") as file:
                file.write(json.dumps(asdict(exchange)) + "\n")

    def _send_reply(
        self, connection: BaseHTTPRequestHandler, exchange: Exchange, prompt: str, room: int
    ) -> None:
        request = exchange.request
        room = min(room, request["max_tokens"])
        seed = zlib.crc32(prompt.encode(), self._seed)
        events = _iterate_reply_events(self._model, exchange, prompt, room, seed)
        if not request.get("stream"):
            for _ in events:
                pass
            _send_json(connection, 200, _build_message(exchange, exchange.blocks))
            return
        connection.send_response(200)
        connection.send_header("content-type", "text/event-stream")
        connection.send_header("request-id", "req_small")
        connection.end_headers()
        for event in _with_pings(events):
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            connection.wfile.write(data.encode())
            connection.wfile.flush()


def _with_pings(events: Iterable[Json]) -> Iterator[Json]:
    """Yield the events, and a ping for each silence of `PING_EVERY_S`, as the API does."""
    ready = SimpleQueue[Json | None]()

    def read() -> None:
        try:
            for event in events:
                ready.put(event)
        finally:
            ready.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            event = ready.get(timeout=PING_EVERY_S)
        except Empty:
            yield {"type": "ping"}
            continue
        if event is None:
            return
        yield event


def build_prompt(request: Json) -> str:
    """Return the prompt of a request in the chat format of the model."""
    system = _convert_content(request.get("system", ""))
    tools = _list_tools(request)
    if tools:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        system += (
            f"\n\nTools:\n{lines}\n\nBegin the reply with {CALL} to call a tool, or"
            f" with {ANSWER} to answer."
        )
    schema = find_schema(request)
    if schema is not None:
        system += f"\n\nAnswer with JSON of this schema: {json.dumps(schema)}"
    turns = [_TURN.format(role="system", text=system)]
    for message in request["messages"]:
        text = "\n".join(filter(None, map(_convert_block, get_blocks(message))))
        turns.append(_TURN.format(role=message["role"], text=text))
    return "".join(turns) + "<|im_start|>assistant\n"


def find_schema(request: Json) -> Json | None:
    """Return the schema of the answer that a request asks for; None: text."""
    schema: Json | None = request.get("output_config", {}).get("format", {}).get("schema")
    return schema


def _list_tools(request: Json) -> list[Json]:
    """Return the name, the description and the schema of the tools that the model may call."""
    if request.get("tool_choice", {}).get("type") == "none":
        return []
    tools: list[Json] = []
    for tool in request.get("tools", []):
        if "input_schema" in tool:
            tools.append(
                {key: tool.get(key, "") for key in ("name", "description", "input_schema")}
            )
    return tools


def _convert_content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content)


def _convert_block(block: Json) -> str:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "tool_use":
            call = {"name": block["name"], "arguments": block["input"]}
            return f"{CALL}{json.dumps(call, ensure_ascii=False)}</tool_call>"
        case "tool_result":
            return f"<tool_response>{_convert_content(block.get('content', ''))}</tool_response>"
        case _:
            return ""


@dataclass(slots=True)
class _Writer:
    """Writes the reply of the model, and yields its events."""

    model: SmallModel
    exchange: Exchange
    prompt: str
    room: int
    seed: int

    def choose(self, options: list[str]) -> str:
        option = self.model.choose(self.prompt, options, self.seed)
        self.prompt += option
        return option

    def write(self, kind: str, name: str, **rule: Any) -> Iterator[Json]:
        """Complete the prompt in a content block, which has begun."""
        index = len(self.exchange.blocks) - 1
        text = ""
        used_tokens = self.exchange.output_tokens
        for piece in self.model.complete(self.prompt, self.room - used_tokens, self.seed, **rule):
            text += piece.text
            self.exchange.output_tokens += piece.tokens
            if piece.is_cut:
                self.exchange.stop_reason = "max_tokens"
            if piece.text:
                delta = {"type": kind, name: piece.text}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
        self.prompt += text
        block = self.exchange.blocks[-1]
        if block["type"] == "text":
            block["text"] = text
        else:
            block["input"] = _parse_arguments(text)
        yield {"type": "content_block_stop", "index": index}

    def begin(self, block: Json) -> Json:
        self.exchange.blocks.append(block)
        index = len(self.exchange.blocks) - 1
        return {"type": "content_block_start", "index": index, "content_block": dict(block)}


def _parse_arguments(text: str) -> Any:
    """Return the arguments of a call. Cut arguments stay text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _iterate_reply_events(
    model: SmallModel, exchange: Exchange, prompt: str, room: int, seed: int
) -> Iterator[Json]:
    request = exchange.request
    start = {**_build_message(exchange, []), "stop_reason": None}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    writer = _Writer(model, exchange, prompt, room, seed)
    tools = {tool["name"]: tool for tool in request.get("tools", []) if "input_schema" in tool}
    options = _list_options(request)
    for _ in range(MAX_CALLS):
        if not tools or writer.choose(options) != CALL:
            break
        yield from _write_call(writer, tools)
        if exchange.stop_reason:
            break
        exchange.stop_reason = "tool_use"
        writer.prompt += "</tool_call>"
        if request.get("tool_choice", {}).get("disable_parallel_tool_use"):
            break
        exchange.stop_reason = ""
        options = [CALL, END]
    if not exchange.blocks:
        schema = find_schema(request)
        rule: Json = {"stop": ["</answer>"]} if schema is None else {"json_schema": schema}
        yield writer.begin({"type": "text", "text": ""})
        yield from writer.write("text_delta", "text", **rule)
    if not exchange.stop_reason:
        has_calls = exchange.blocks[-1]["type"] == "tool_use"
        exchange.stop_reason = "tool_use" if has_calls else "end_turn"
    end = {"stop_reason": exchange.stop_reason, "stop_sequence": None}
    usage = {"output_tokens": exchange.output_tokens}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _list_options(request: Json) -> list[str]:
    match request.get("tool_choice", {}).get("type"):
        case "none":
            return [ANSWER]
        case "any" | "tool":
            return [CALL]
        case _:
            return [ANSWER, CALL]


def _write_call(writer: _Writer, tools: dict[str, Json]) -> Iterator[Json]:
    """Let the model choose a tool and write its arguments."""
    forced_tool = writer.exchange.request.get("tool_choice", {}).get("name")
    writer.prompt += '{"name": '
    names = [forced_tool] if forced_tool else list(tools)
    name = json.loads(writer.choose(list(map(json.dumps, names))))
    writer.prompt += ', "arguments": '
    count = len(writer.exchange.blocks)
    id_ = f"toolu_{writer.seed:08x}{count}"
    yield writer.begin({"type": "tool_use", "id": id_, "name": name, "input": {}})
    tool = tools[name]
    schema = tool["input_schema"] if tool.get("strict") else {"type": "object"}
    yield from writer.write("input_json_delta", "partial_json", json_schema=schema)
    writer.prompt += "}"


def _build_message(exchange: Exchange, blocks: list[Json]) -> Json:
    return {
        "id": "msg_small",
        "type": "message",
        "role": "assistant",
        "model": exchange.request["model"],
        "content": blocks,
        "stop_reason": exchange.stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": exchange.input_tokens,
            "output_tokens": max(1, exchange.output_tokens),
        },
    }


def _send_error(connection: BaseHTTPRequestHandler, message: str) -> None:
    error = {"type": "invalid_request_error", "message": message}
    _send_json(connection, 400, {"type": "error", "error": error})


def _send_json(connection: BaseHTTPRequestHandler, status: int, value: Json) -> None:
    body = json.dumps(value).encode()
    connection.send_response(status)
    connection.send_header("content-type", "application/json")
    connection.send_header("request-id", "req_small")
    connection.send_header("content-length", str(len(body)))
    connection.end_headers()
    connection.wfile.write(body)
