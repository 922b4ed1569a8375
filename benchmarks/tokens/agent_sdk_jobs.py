"""The Claude Agent SDK (`claude-agent-sdk`), whose wheel contains the program that makes the
calls.

The package is in `requirements-bench.txt`. The process runs the jobs in order, and prints their
answers as JSON: `python -m benchmarks.tokens.agent_sdk_jobs URL MODEL [team]`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from typing import Any

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from benchmarks.tokens.by_hand import AGENT, WORKERS
from benchmarks.tokens.jobs import Job, list_jobs

LEADER = (
    "You lead a team. Give the facts of each document to a `worker`, all at once. Then write one"
    " answer to the request from the reports. Add no facts. Keep the footnotes with sources and"
    " quotes. Answer in Markdown."
)
READ = "mcp__docs__read_document"


async def run(job: Job, url: str, model: str, *, is_team: bool, folder: str) -> str:
    """Return the answer of one agent, or of a leader with subagents."""

    @tool("read_document", "Returns the text of a document.", {"path": str})
    async def read_document(arguments: dict[str, Any]) -> dict[str, Any]:
        text = job.documents[arguments["path"]].decode()
        return {"content": [{"type": "text", "text": text}]}

    options = ClaudeAgentOptions(
        model=model,
        system_prompt=LEADER if is_team else AGENT,
        tools=["Agent"] if is_team else [],
        allowed_tools=[READ, "Agent"],
        mcp_servers={"docs": create_sdk_mcp_server("docs", tools=[read_document])},
        agents=_define_workers() if is_team else None,
        permission_mode="bypassPermissions",
        setting_sources=[],
        cwd=folder,
        env={
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "test-key",
            "CLAUDE_CONFIG_DIR": folder,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
        },
    )
    request = f"{job.request}\n\nDocuments: {', '.join(job.paths)}"
    answer = ""
    async for message in query(prompt=request, options=options):
        if isinstance(message, ResultMessage):
            answer = message.result or ""
    return answer


def _define_workers() -> dict[str, AgentDefinition]:
    worker = AgentDefinition(
        description="Reports the facts of one document.", prompt=WORKERS, tools=[READ]
    )
    return {"worker": worker}


async def run_all(url: str, model: str, *, is_team: bool) -> list[str]:
    answers: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for job in list_jobs():
            answers.append(await run(job, url, model, is_team=is_team, folder=folder))
    return answers


def main() -> None:
    url, model, *way = sys.argv[1:]
    print(json.dumps(asyncio.run(run_all(url, model, is_team=way == ["team"]))))


if __name__ == "__main__":
    main()
