"""Span attributes of a handoff, a model call and a tool call, by OpenTelemetry's conventions
for generative AI (https://github.com/open-telemetry/semantic-conventions-genai, as of November
2026).

Attributes without a convention begin with `handoff.`. No attribute holds text of a person, a
model or a tool, except for `content_*`, which are off by default. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult
from handoff_queue.shared.types.model import Block, ModelCall, ModelReply
from handoff_queue.shared.types.usage import Usage

Attributes = dict[str, str | bool | int | float | Sequence[str]]

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Variable of the conventions that turns on content. Without it, spans have no content."""
CAPTURES = ("true", "span_only", "span_and_event")
"""Values of the variable that put content on spans."""
_PROVIDERS = {
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
    "foundry": "azure.ai.inference",
}
_FINISHED = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Stop reason of the Messages API -> finish reason of the conventions."""


def get_provider(settings: Settings) -> str:
    if settings.is_offline:
        return OFFLINE_MODEL
    return _PROVIDERS[settings.model_provider]


def build_job_attributes(life: JobSpan) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": life.mode,
        "handoff.job.id": life.job_id,
        "handoff.job.status": life.status,
        "handoff.job.retries": life.retries,
    }


def build_handoff_attributes(handoff: AgentHandoff, provider: str, model: str | None) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.agent.name": handoff.assigned_to,
        "gen_ai.agent.version": handoff.specialist[:12],
        **({"gen_ai.request.model": model} if model else {}),
        "handoff.job.id": handoff.job_id,
        "handoff.id": handoff.handoff_id,
        "handoff.step.id": handoff.step_id,
        "handoff.attempt": handoff.attempt,
    }


DROPPED: Attributes = {"handoff.status": "dropped"}
"""Attributes of a handoff that no job needs any more."""


def build_result_attributes(result: HandoffResult) -> Attributes:
    return {
        **({"gen_ai.response.model": result.model} if result.model else {}),
        "gen_ai.response.finish_reasons": [result.stop_reason.value],
        **_build_usage_attributes(result.usage),
        "handoff.status": result.status.value,
        "handoff.turns": result.turns,
    }


def build_call_attributes(call: ModelCall, provider: str) -> Attributes:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": call.model,
        "gen_ai.request.max_tokens": call.max_output_tokens,
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "text" if call.output_schema is None else "json",
    }


def build_batched_call_attributes(
    call: ModelCall, provider: str, batch_id: str | None
) -> Attributes:
    """Return the attributes of a call in a batch.

    Args:
        batch_id: None if the id is not known.
    """
    return {
        **build_call_attributes(call, provider),
        "gen_ai.request.stream": False,
        **({"handoff.batch.id": batch_id} if batch_id else {}),
    }


def reply_attributes(reply: ModelReply) -> Attributes:
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.stop_reason],
        **({"anthropic.request.id": reply.request_id} if reply.request_id else {}),
        **_build_usage_attributes(reply.usage),
    }


def build_tool_call_attributes(call: Block, name: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": str(call.get("id", "")),
    }


def build_call_content(call: ModelCall) -> Attributes:
    messages: list[dict[str, Any]] = []
    for message in call.messages:
        messages.append({"role": message["role"], "parts": _build_parts(message["content"])})
    return {
        "gen_ai.system_instructions": _encode_json([{"type": "text", "content": call.system.text}]),
        "gen_ai.input.messages": _encode_json(messages),
    }


def build_reply_content(reply: ModelReply) -> Attributes:
    why = _FINISHED.get(reply.stop_reason, reply.stop_reason)
    return {
        "gen_ai.output.messages": _encode_json(
            [{"role": "assistant", "parts": _build_parts(reply.content), "finish_reason": why}]
        )
    }


def build_tool_call_content(call: Block) -> Attributes:
    return {"gen_ai.tool.call.arguments": _encode_json(call.get("input"))}


def build_tool_result_content(result: ToolObserved) -> Attributes:
    return {"gen_ai.tool.call.result": result.text}


def _build_usage_attributes(usage: Usage) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
    }


def _build_parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    else:
        blocks = content
    parts: list[dict[str, Any]] = []
    for block in blocks:
        parts.append(_build_part(block))
    return parts


def _build_part(block: Block) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "content": block.get("text")}
        case "compaction":
            return {"type": "text", "content": block.get("content")}
        case "tool_use":
            return {
                "type": "tool_call",
                "id": block.get("id"),
                "name": block.get("name"),
                "arguments": block.get("input"),
            }
        case "tool_result":
            return {
                "type": "tool_call_response",
                "id": block.get("tool_use_id"),
                "response": block.get("content"),
            }
        case "thinking":
            return {"type": "reasoning", "content": block.get("thinking")}
        case other:
            return {"type": str(other)}


def _encode_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
