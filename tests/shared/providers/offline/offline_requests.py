"""Helpers that send requests to the offline model through the SDK's client."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic

from handoff_queue.shared.agent.opening_message import format_result_data
from handoff_queue.shared.providers.offline.transport import OfflineTransport
from handoff_queue.shared.types.handoff import Citation, Claim, Document
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.workers.tools.read_document import cut_part
from tests.doubles import handoffs

EXAMPLES = Path(__file__).parents[4] / "examples" / "vector-databases"
MAX_TURNS = 6

PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "steps": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "specialist": {
                        "type": "string",
                        "enum": ["analyst", "generalist", "researcher", "writer"],
                    },
                    "task": {"type": "string"},
                    "depends_on": {"type": "array", "items": {"type": "string"}},
                    "fallback": {"type": "string"},
                },
                "required": ["id", "specialist", "task", "depends_on", "fallback"],
                "additionalProperties": False,
            },
        },
        "synthesis": {"type": "string", "enum": ["merge", "reconcile"]},
        "why": {"type": "string"},
    },
    "required": ["steps", "synthesis", "why"],
    "additionalProperties": False,
}
VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["PASS", "REVISE"]},
        "revisions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"step": {"type": "string"}, "problem": {"type": "string"}},
                "required": ["step", "problem"],
                "additionalProperties": False,
            },
        },
        "open_points": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["verdict", "revisions", "open_points"],
    "additionalProperties": False,
}


def envelope_schema(output: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of the answer envelope in docs/design.md."""
    source = {
        "type": "object",
        "properties": {"source": {"type": "string"}, "quote": {"type": "string"}},
        "required": ["source", "quote"],
    }
    claim = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "text": {"type": "string"},
            "sources": {"type": "array", "items": source},
        },
        "required": ["id", "text", "sources"],
    }
    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    properties = {
        "status": {"type": "string", "enum": ["ok", "partial", "failed", "needs_input"]},
        "output": dict(output or {"type": "string"}),
        "claims": {"type": "array", "items": claim},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "needs": nullable,
        "problem": nullable,
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def client() -> anthropic.Anthropic:
    """Return the SDK's client with the offline transport."""
    http = anthropic.DefaultHttpxClient(transport=OfflineTransport())
    return anthropic.Anthropic(
        api_key="offline", base_url="http://offline.invalid", max_retries=0, http_client=http
    )


@dataclass
class Library:
    """The two document tools. A passage scores by the rarity of the query's words that it
    contains.
    """

    texts: dict[str, str]
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> Library:
        return cls(
            {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
        )

    @property
    def tools(self) -> list[dict[str, Any]]:
        search = {"query": {"type": "string"}, "limit": {"type": "integer"}}
        read = {"source": {"type": "string"}, "offset": {"type": "integer"}}
        return [
            {
                "name": "search_documents",
                "description": "Full-text search.",
                "input_schema": _object(search, ["query"]),
            },
            {
                "name": "read_document",
                "description": "Reads a document.",
                "input_schema": _object(read, ["source"]),
            },
        ]

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.calls.append((name, dict(arguments)))
        if name == "search_documents":
            return json.dumps(self._search(**arguments))
        return self._read(**arguments)

    def _search(self, query: str, limit: int = 8) -> dict[str, Any]:
        passages = [
            (source, passage)
            for source, text in self.texts.items()
            for passage in re.finditer(r"\S.*(?:\n\S.*)*", text)
        ]
        bags = [set(re.findall(r"\w+", passage.group().lower())) for _, passage in passages]
        rarity = {
            word: math.log(1 + len(bags) / (1 + sum(word in bag for bag in bags)))
            for word in re.findall(r"\w+", query.lower())
        }
        scored = [
            (sum(weight for word, weight in rarity.items() if word in bag), each)
            for bag, each in zip(bags, passages, strict=True)
        ]
        best = sorted(
            (each for each in scored if each[0]),
            key=lambda each: (-each[0], each[1][0], each[1][1].start()),
        )
        hits = [
            {
                "source": source,
                "offset": passage.start(),
                "snippet": passage.group(),
                "score": round(score, 3),
            }
            for score, (source, passage) in best[:limit]
        ]
        return {"hits": hits, "searched": len(self.texts)}

    def _read(self, source: str, offset: int = 0) -> str:
        text = self.texts[source]
        document = Document(
            path=source, digest=compute_digest(text), media_type="text/plain", chars=len(text)
        )
        return cut_part(document, text, offset)


def ask(
    content: str,
    schema: Mapping[str, Any] | None = None,
    *,
    system: str = "You are one of several specialists.",
    **more: Any,
) -> Any:
    """Send one request. Return the answer parsed as JSON, or as text if there is no schema."""
    if schema is not None:
        more["output_config"] = {"format": {"type": "json_schema", "schema": dict(schema)}}
    message = client().messages.create(
        model="offline",
        max_tokens=8_192,
        system=system,
        messages=[{"role": "user", "content": content}],
        **more,
    )
    text = "".join(block.text for block in message.content if block.type == "text")
    return json.loads(text) if schema is not None else text


def work(
    content: str,
    library: Library,
    *,
    output_format: Mapping[str, Any] | None = None,
    is_schema_in_words: bool = False,
) -> dict[str, Any]:
    """Return the final answer of a tool loop. Each turn is streamed."""
    schema = envelope_schema(output_format)
    system = "You are the researcher."
    more: dict[str, Any] = {}
    if output_format:
        content += f"\n<output_format>{json.dumps(output_format)}</output_format>"
    if is_schema_in_words:
        system += f" Your answer matches this JSON Schema: {json.dumps(schema)}"
    else:
        more["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    messages: list[Any] = [{"role": "user", "content": content}]
    for _ in range(MAX_TURNS):
        with client().messages.stream(
            model="offline",
            max_tokens=8_192,
            system=system,
            messages=messages,
            tools=library.tools,  # type: ignore[arg-type]
            **more,
        ) as stream:
            message = stream.get_final_message()
        if message.stop_reason != "tool_use":
            text = "".join(block.text for block in message.content if block.type == "text")
            answer = json.loads(text)
            assert isinstance(answer, dict)
            return answer
        results = []
        for block in message.content:
            if block.type == "tool_use":
                result = library.run(block.name, block.input)
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": result})
        messages += [
            {"role": "assistant", "content": message.to_param()["content"]},
            {"role": "user", "content": results},
        ]
    raise AssertionError(f"no answer after {MAX_TURNS} turns")


def as_result(step: str, answer: Mapping[str, Any]) -> str:
    """Return an answer as the next step sees it, with ids and markers that name the step."""
    output = re.sub(r"\[(c\d+)\]", rf"[{step}.\1]", answer["output"])
    claims = [{**claim, "id": f"{step}.{claim['id']}"} for claim in answer["claims"]]
    return shown_result(step, output, claims, answer["status"])


def a_result(step: str, *claims: str, output: str | None = None, status: str = "ok") -> str:
    """Return the result of a step. Its default output states the claims."""
    listed = []
    statements = []
    for number, text in enumerate(claims, 1):
        source = {"source": "a.md", "quote": text}
        listed.append({"id": f"{step}.c{number}", "text": text, "sources": [source]})
        statements.append(f"{text[:-1]} [{step}.c{number}].")
    stated = " ".join(statements) if output is None else output
    return shown_result(step, stated, listed, status)


def shown_result(
    step: str, output: str, claims: Iterable[Mapping[str, Any]], status: str = "ok"
) -> str:
    """Return a result as the opening message of a handoff shows it."""
    checked: list[Claim] = []
    for claim in claims:
        sources: list[Citation] = []
        for source in claim["sources"]:
            sources.append(
                Citation(**source, digest=compute_digest(source["quote"]), start=0, end=1)
            )
        checked.append(Claim(id=claim["id"], text=claim["text"], sources=tuple(sources)))
    result = handoffs.a_result(step, claims=tuple(checked))
    data = format_result_data(result.model_copy(update={"output": output}))
    return f'<result step="{step}" status="{status}"> <data>{data}</data> </result>'


@dataclass(frozen=True)
class Job:
    """Plan, results, answer and verdict of one request."""

    plan: dict[str, Any]
    results: dict[str, dict[str, Any]]
    answer: dict[str, Any]
    verdict: dict[str, Any]


def run_job(request: str, library: Library) -> Job:
    """Run a job without queues. Every model call goes through the SDK."""
    brief = f"Make the plan for the request below, with at most 20 steps.\n\nRequest:\n{request}"
    plan = ask(f"<task>{brief}</task>", PLAN_SCHEMA)
    results: dict[str, dict[str, Any]] = {}
    context: dict[str, str] = {}
    for step in plan["steps"]:
        given = "\n\n".join(
            [f"<task>{step['task']}</task>", *(context[each] for each in step["depends_on"])]
        )
        if step["depends_on"]:
            results[step["id"]] = ask(given, envelope_schema())
            output = results[step["id"]]["output"]
            context[step["id"]] = shown_result(step["id"], output, _carried(results))
        else:
            results[step["id"]] = work(given, library)
            context[step["id"]] = as_result(step["id"], results[step["id"]])
    brief = (
        "Judge the results of round 1 against the request below (work may be sent back 2 more"
        f" times).\n\nRequest:\n{request}"
    )
    judged = f"<task>{brief}</task>\n\n" + "\n\n".join(context.values())
    return Job(plan, results, results[plan["steps"][-1]["id"]], ask(judged, VERDICT_SCHEMA))


def _carried(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**claim, "id": f"{step}.{claim['id']}"}
        for step, result in results.items()
        for claim in result["claims"]
    ]


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
