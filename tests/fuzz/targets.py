"""The parsers that read data of other programs, each with its promise for any bytes.

A target takes bytes and returns nothing. It raises an exception if the parser breaks its promise.
The parser may raise another exception than the documented ones, or return a result that the next
part cannot use.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.json_repair import describe_text, parse_partial_object
from handoff_queue.shared.agent.json_schema_validation import (
    BrokenSchema,
    check_schema,
    find_problem,
)
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.broker.flower import select_usable_event
from handoff_queue.shared.broker.kombu_message_validation import (
    find_arguments_problem,
    find_task_problem,
    parse_frame,
)
from handoff_queue.shared.documents.extraction import extract
from handoff_queue.shared.documents.media_types import DocumentRefused, decode, normalize_text
from handoff_queue.shared.documents.pdf import extract_pdf_text
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.specialists.mcp_servers import find_listing_fault, read_listings
from handoff_queue.shared.specialists.specialist_files import read_specialist
from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.shared.store.payloads import unpack
from handoff_queue.shared.text.unicode_text import remove_invisible
from handoff_queue.shared.text.yaml_reader import YamlFault, parse_tree
from handoff_queue.shared.types.condition_syntax import parse_condition
from handoff_queue.shared.types.errors import MalformedMessage, UnreadablePayload, UserError
from handoff_queue.shared.types.events import parse_event
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.client.cron import check_cron
from handoff_queue.supervisor.gates.facts import read_facts
from handoff_queue.supervisor.gates.gates_file import read_gates
from handoff_queue.supervisor.text.csv_tables import iterate_rows
from handoff_queue.supervisor.workflows.parser import parse_workflow
from handoff_queue.supervisor.workflows.template import Template
from handoff_queue.workers.tools.proxy_request import NoProxyRequest, parse_request
from tests.doubles.handoffs import a_handoff, a_result
from tests.shared.documents.sample_files import pdf_with

MAX_UNPACKED = 1_000_000
NOON = 1_790_000_000.0
"""A time for schedules, in Unix seconds."""
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
"""Folder of the files that a parser reads by their paths."""
SPECIALIST = """---
name: chemist
description: Answers questions about reactions.
tools: [search_documents, read_document]
output_schema: {type: object, properties: {a: {type: string}}}
---

You are a chemist. Answer in one paragraph.
"""
WORKFLOW = """
description: Look at each part.
steps:
  - id: look
    title: Look
    specialist: analyst
    task: Look at {item}.
    for_each: lines
  - {id: write, title: Write, specialist: writer, task: Write it., depends_on: [look]}
"""
MESSAGE = {
    "body": "W1siaiJdLHt9LHt9XQ==",
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {
        "task": "advance",
        "id": "f",
        "lang": "py",
        "retries": 0,
        "timelimit": [None, None],
    },
    "properties": {
        "body_encoding": "base64",
        "delivery_tag": "t",
        "delivery_info": {"exchange": "", "routing_key": "writer"},
    },
}
EVENTS = (
    {"type": "job_ended", "status": "failed", "reason": "model_error"},
    {"type": "cancel_requested", "by": "user"},
    {"type": "rejected", "asked": 1, "note": None, "steps": ["a"]},
)
ANSWER = {
    "status": "ok",
    "output": "It is 3 [c1].",
    "claims": [{"id": "c1", "text": "3", "sources": [{"source": "a.md", "quote": "3"}]}],
    "confidence": 0.5,
    "needs": None,
    "problem": None,
}
SCHEMA = {
    "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "uniqueItems": True}},
    "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"pattern": "^x+$", "multipleOf": 0.5}},
    "patternProperties": {"^y": {"enum": [1, "1"]}},
    "additionalProperties": False,
}
FLOWER_EVENT = {
    "type": "task-received",
    "uuid": "j-0123456789ab/a.1",
    "hostname": "w@h",
    "timestamp": NOON,
    "local_received": NOON,
    "clock": 7,
}
LISTING = {"shop": {"price": {"description": "x", "inputSchema": {"type": "object"}}}}
PAGE = """<html><head><title>A</title></head><body><main><h1>A</h1><p hidden>x</p>
<ul><li>a<li>b</ul><pre> c </pre><table><tr><td>1<td>2</table></main></body></html>"""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser with its promise."""

    run: Callable[[bytes], None]
    """Raises if the promise does not hold for these bytes."""
    seeds: tuple[bytes, ...]
    """Valid inputs, which a fuzzer changes."""


def _text(data: bytes) -> str:
    """Return the text of any bytes, as a socket or a file gives it."""
    return data.decode(errors="replace")


def _json(data: bytes) -> Any:
    """Return the JSON value of the bytes; None if there is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _file(name: str, data: bytes) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def _is_clean(text: str) -> None:
    assert normalize_text(text) == text, "control characters or surrogates are left"
    text.encode()


def html(data: bytes) -> None:
    with suppress(DocumentRefused):
        text = extract(data, "text/html")
        _is_clean(text)
        assert remove_invisible(text) == text


def plain_text(data: bytes) -> None:
    with suppress(DocumentRefused):
        _is_clean(extract(data, "text/plain", "shift_jis"))


def pdf(data: bytes) -> None:
    with suppress(DocumentRefused):
        _is_clean(extract_pdf_text(io.BytesIO(data)))


def table(data: bytes) -> None:
    with suppress(DocumentRefused, UserError):
        text = decode(data)
        for _, row in iterate_rows(Path("a.csv"), text, ","):
            assert all(isinstance(cell, str) for cell in row.values())


def facts(data: bytes) -> None:
    with suppress(UserError):
        read_facts(_file("facts.csv", data))
    if data.startswith(b"SQLite format 3\0"):
        with suppress(UserError):
            read_facts(_file("facts.db", data), table="facts")


def yaml(data: bytes) -> None:
    with suppress(YamlFault):
        parse_tree(_text(data))


def specialist(data: bytes) -> None:
    with suppress(UserError):
        read_specialist(_file("a.md", data)).to_json()


def workflow(data: bytes) -> None:
    with suppress(UserError):
        parse_workflow(_text(data))


def gates(data: bytes) -> None:
    with suppress(UserError):
        read_gates(_file("gates.yaml", data))


def schema(data: bytes) -> None:
    value = _json(data)
    try:
        check_schema(value)
    except BrokenSchema:
        return
    for instance in (None, 1, "x", [1, 1.0], {"a": [[]], "b": "xx", "y": 1}, value):
        find_problem(instance, value)


def event(data: bytes) -> None:
    with suppress(MalformedMessage):
        parsed = parse_event(data)
        assert parse_event(parsed.to_json()) == parsed


def journal_entry(data: bytes) -> None:
    with suppress(MalformedMessage):
        parse_entry(7, data)


def queue_message(data: bytes) -> None:
    message = json.loads(json.dumps(parse_frame(data, "writer")))
    headers = message.get("headers") or {}
    json.dumps(message, ensure_ascii=False).encode()
    find_task_problem(headers, message.get("content-type"), message.get("content-encoding"))
    find_arguments_problem(_json(data))


def handoff(data: bytes) -> None:
    for kind in (AgentHandoff, HandoffResult):
        with suppress(MalformedMessage):
            parsed: BaseModel = kind.from_json(data)
            assert kind.from_json(parsed.model_dump_json()) == parsed


def payload(data: bytes) -> None:
    with suppress(UnreadablePayload):
        assert len(unpack(data, MAX_UNPACKED).encode()) <= MAX_UNPACKED


def answer(data: bytes) -> None:
    text = _text(data)
    describe_text(text)
    parse_partial_object(text)
    for output_schema in ({"type": "string"}, {"type": "object", "properties": {"a": {}}}):
        answer_format = EnvelopeFormat(StepId("a"), output_schema, Sources(str))
        for last_try in (False, True):
            with suppress(InvalidAnswer):
                answer_format.read(text, last_try=last_try)
        answer_format.salvage(text)


def flower_event(data: bytes) -> None:
    clean = select_usable_event(_json(data))
    if clean is not None:
        assert isinstance(clean["timestamp"], int | float)


def mcp_listing(data: bytes) -> None:
    _file("a.mcp.json", data)
    listings, _ = read_listings(FOLDER / "a.md")
    for name, listing in listings.items():
        find_listing_fault(name, listing)


def redis_url(data: bytes) -> None:
    with suppress(ValueError):
        read_address(_text(data))


def condition(data: bytes) -> None:
    with suppress(ValueError):
        parse_condition(_text(data))


def template(data: bytes) -> None:
    parsed = Template.parse(_text(data))
    parsed.fill(dict.fromkeys(parsed.names, "x"))


def proxy_request(data: bytes) -> None:
    """A request of a tool to its proxy names a plain host, and is passed on with this host."""
    with suppress(NoProxyRequest):
        request = parse_request(data)
        assert re.fullmatch(r"[a-z0-9.-]{1,253}", request.host)
        assert 0 < request.port < 65_536
        if request.head is not None:
            sent = next(request.iterate_pieces(lambda _: b"")).lower()
            assert sent.split(b"\r\n")[1].startswith(f"host: {request.host}".encode())
            assert sent.count(b"\r\nhost:") == sent.count(b"\n\r\n") == 1
            assert sent.count(b"\r\ncontent-length:") + sent.count(b"\r\ntransfer-encoding:") < 2


def cron(data: bytes) -> None:
    with suppress(UserError):
        _, slot = check_cron(_text(data), "Europe/Berlin", NOON)
        assert slot > NOON


def _as_json(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


TARGETS = {
    "html": Target(html, (PAGE.encode(), b"<meta charset=utf-16><p>x")),
    "plain_text": Target(plain_text, (b"a\r\nb", "\ufeffä".encode("utf-16"), b"\x82\xa0")),
    "pdf": Target(pdf, (pdf_with("Hello"), b"%PDF-1.4\ntrailer << /Root 1 0 R >>")),
    "table": Target(table, (b"a,b\n1,2\n", b'a;b\n"1;";2\n')),
    "facts": Target(
        facts, (b"subject,attribute,value,unit\nEverest,height,8849,m\n", b"SQLite format 3\0")
    ),
    "yaml": Target(yaml, (b"a: [1, {b: c}]\n", b"a: |\n  x\n? b\n: - c\n", b"a: 1:30\n")),
    "specialist": Target(specialist, (SPECIALIST.encode(),)),
    "workflow": Target(workflow, (WORKFLOW.encode(),)),
    "gates": Target(gates, (b"min_words: 3\nmust_match: ['x+']\nmust_not_contain: [y]\n",)),
    "schema": Target(schema, _as_json(SCHEMA, {"type": "string"}, {"allOf": [{"const": 1}]})),
    "event": Target(event, _as_json(*EVENTS)),
    "journal_entry": Target(
        journal_entry, tuple(b"1790000000000\n" + text for text in _as_json(*EVENTS))
    ),
    "queue_message": Target(queue_message, _as_json(MESSAGE, [["j"], {}, {"chord": None}])),
    "handoff": Target(handoff, (a_handoff().to_json().encode(), a_result().to_json().encode())),
    "payload": Target(payload, (b"=text", b"zx\x9cKLJ\x06\x00\x02M\x01'")),
    "answer": Target(answer, (*_as_json(ANSWER), b'```json\n{"output": "a\n\\x",}\n```')),
    "flower_event": Target(flower_event, _as_json(FLOWER_EVENT)),
    "mcp_listing": Target(mcp_listing, _as_json(LISTING)),
    "redis_url": Target(
        redis_url,
        (
            b"redis://:p%2F@h:6379/0?prefix=a&socket_timeout=3",
            b"rediss://u:p@[::1]:1/2?ssl_cert_reqs=none",
            b"sentinel://a:1;sentinel://b:2/0?service_name=x",
        ),
    ),
    "condition": Target(
        condition, (b"a.output.x > 3 and not b.status == 'ok'", b"a.b in [1, 'x']")
    ),
    "template": Target(template, (b"Look at {item} and {{this}}",)),
    "proxy_request": Target(
        proxy_request,
        (
            b"CONNECT api.example.org:443 HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
            b"GET http://api.example.org:81/a?b=c HTTP/1.0\r\nProxy-Connection: close\r\n\r\nx",
            b"PUT http://a.org/ HTTP/1.1\r\nHost: a.org\r\nContent-Length: 1\r\n\r\nx",
            b"PUT http://a.org/ HTTP/1.1\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
    ),
    "cron": Target(cron, (b"0 9 * * mon-fri", b"*/5 1,2 L * 3#2", b"@daily")),
}
