"""`code_execution`: the provider's own sandbox, in which code runs within a model call.

A specialist has it with `sandbox: provider` in its file. Workers run nothing for it.
"""

from __future__ import annotations

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.types.origins import CODE_EXECUTION, build_tool_origin

SERVER_TYPE = "code_execution_20260521"
"""Version of the tool."""
_DESCRIPTION = (
    "Run Python code and shell commands in a container of the model's provider, without a network."
    " It is not offered with the offline model."
)


def build_code_execution_tool() -> Tool:
    """Return the declaration of the server-side tool."""
    return Tool(
        name=CODE_EXECUTION,
        description=_DESCRIPTION,
        input_schema={
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
            "additionalProperties": False,
        },
        run=None,
        server_param={"type": SERVER_TYPE, "name": CODE_EXECUTION},
        origins=(build_tool_origin(CODE_EXECUTION),),
    )
