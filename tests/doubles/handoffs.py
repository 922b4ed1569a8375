"""Small handoffs, results, specs, manifests and tools for tests of the agent loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    BlobRef,
    ContextResult,
    Document,
    HandoffResult,
    Manifest,
    ResultStatus,
)
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.specialist import SpecialistSpec

JOB = JobId("j-0123456789ab")
STEP = StepId("find")


def a_spec(*tools: str, name: str = "researcher") -> SpecialistSpec:
    return SpecialistSpec(
        name=name,
        description="Finds facts in documents.",
        instructions="You find facts in documents and state them.",
        tools=tools,
    )


def a_handoff(
    *, limits: HandoffLimits | None = None, context: tuple[ContextResult, ...] = (), **changes: Any
) -> AgentHandoff:
    values: dict[str, Any] = {
        "handoff_id": build_handoff_id(STEP, 1),
        "job_id": JOB,
        "step_id": STEP,
        "attempt": 1,
        "assigned_to": "researcher",
        "specialist": compute_digest("spec"),
        "task_description": "Find what Qdrant is written in.",
        "depends_on": tuple(item.step_id for item in context),
        "context": context,
        "limits": limits or HandoffLimits(),
        "origins": ("model", "user"),
    }
    return AgentHandoff(**{**values, **changes})


def a_result(step: str = "before", output: Any = "Something.", **changes: Any) -> HandoffResult:
    values: dict[str, Any] = {"status": ResultStatus.OK, "output": output, "confidence": 1.0}
    return HandoffResult(
        handoff_id=build_handoff_id(step, 1),
        job_id=JOB,
        step_id=StepId(step),
        attempt=1,
        **{**values, **changes},
    )


def context_of(result: HandoffResult) -> ContextResult:
    text = result.to_json()
    return ContextResult(
        step_id=result.step_id, result=BlobRef(digest=compute_digest(text), size=len(text))
    )


def a_manifest(**texts: str) -> tuple[Manifest, Callable[[str], str]]:
    """Return a manifest of `NAME.md` documents, and the function that reads their texts."""
    by_digest = {compute_digest(text): text for text in texts.values()}
    documents = tuple(
        Document(
            path=f"{name}.md",
            digest=compute_digest(text),
            media_type="text/markdown",
            chars=len(text),
        )
        for name, text in texts.items()
    )

    def text_of(digest: str) -> str:
        if digest not in by_digest:
            raise ToolFailed("no such document")
        return by_digest[digest]

    return Manifest(documents=documents), text_of


def a_tool_context(
    manifest: Manifest | None = None, text_of: Callable[[str], str] | None = None
) -> ToolContext:
    def keep(source: str, media_type: str, text: str) -> Document:
        return Document(
            path=source, digest=compute_digest(text), media_type=media_type, chars=len(text)
        )

    return ToolContext(
        job_id=JOB,
        handoff_id=build_handoff_id(STEP, 1),
        manifest=manifest or Manifest(),
        text_of=text_of or a_manifest()[1],
        keep_document=keep,
        remaining_s=lambda: 60.0,
    )


def a_tool(name: str, run: Callable[[dict[str, Any]], str], *, repeatable: bool = True) -> Tool:
    """Return a tool with one text argument `q`."""
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
        "additionalProperties": False,
    }
    return Tool(
        name,
        f"The tool {name}.",
        schema,
        lambda arguments, _context: run(arguments),
        repeatable=repeatable,
    )
