"""Agents written by hand, as in the provider's workshops. One is a loop around `messages.create`
with one tool. The other is a team of an orchestrator, workers and a writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic

from benchmarks.tokens.jobs import Job
from benchmarks.tokens.scripts import PASSED, WORKER

RESEARCHER = "You are a research assistant. Answer the request from the documents."
_FORM = (
    "Give the source and a verbatim quote for each fact, as footnotes. Say so if the documents do"
    " not contain a fact. Answer in Markdown."
)
AGENT = f"{RESEARCHER} Read a document with the tool before you use it. {_FORM}"
READER = f"{RESEARCHER} {_FORM}"
"""Instructions of the agent that has the documents in its prompt, and no tool."""
CLAIMANT = (
    f"{RESEARCHER} Write `answer` in Markdown. Each statement of fact ends with the id of its"
    " claim: [c1]. A claim has the path of a document and a verbatim quote. If the documents do not"
    " contain a fact, say so, and the status is partial."
)
"""Instructions of the agent whose claims code checks."""
CLAIMED_ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["ok", "partial", "failed"]},
        "answer": {"type": "string"},
        "claims": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "source": {"type": "string"},
                    "quote": {"type": "string"},
                },
                "required": ["id", "source", "quote"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["status", "answer", "claims"],
    "additionalProperties": False,
}
"""JSON Schema of an answer that has what a result of this project has: a status, and claims with
sources.
"""
ORCHESTRATOR = (
    "You plan the work of a team. Split the request into tasks that can be done independently, one"
    " for each document. Answer with a JSON array of tasks, each a string with the objective, the"
    " document and the form of the result, and with nothing else."
)
AUTHOR = "You write one answer to the request from the reports of several workers. Add no facts."
WRITER = f"{AUTHOR} Keep the footnotes with sources and quotes. Answer in Markdown."
REVIEWER = (
    "You review the answer of a team. Compare it with the request and the reports of the workers:"
    " every statement needs a source whose quote supports it, and every part of the request needs"
    " an answer. Reply PASS, or list the problems."
)
WORKERS = f"{WORKER} {AGENT}"
READ_DOCUMENT: dict[str, Any] = {
    "name": "read_document",
    "description": "Returns the text of a document.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "the path of the document"}},
        "required": ["path"],
    },
}
MAX_TOKENS = 4_096
MAX_TURNS = 10


class Loop:
    """A client and its loop."""

    def __init__(self, url: str, model: str, *, has_cache: bool) -> None:
        """Make the client.

        Args:
            has_cache: True: each request marks its last block for the prompt cache.
        """
        self._client = anthropic.Anthropic(base_url=url, api_key="test-key", max_retries=0)
        self._options: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS}
        if has_cache:
            self._options["cache_control"] = {"type": "ephemeral"}

    def run_alone(self, job: Job) -> str:
        """Return the answer of one agent."""
        return self._run(AGENT, _with_paths(job.request, job), job.documents)

    def run_with_documents(self, job: Job) -> str:
        """Return the answer of one agent that has the documents in its prompt, and no tool."""
        return self._run(READER, _join_documents(job), {})

    def run_with_claims(self, job: Job) -> str:
        """Return the answer of the same agent with claims, whose marks and quotes code checks.

        Raises:
            ValueError: the answer has no mark of a claim, or a document does not have its quote.
        """
        answer_format = {"format": {"type": "json_schema", "schema": CLAIMED_ANSWER}}
        options = {"output_config": answer_format}
        result = json.loads(self._run(CLAIMANT, _join_documents(job), {}, options))
        lines = [result["answer"]]
        for claim in result["claims"]:
            document = job.documents[claim["source"]].decode()
            if f"[{claim['id']}]" not in result["answer"] or claim["quote"] not in document:
                raise ValueError(f"not proven: {claim}")
            lines.append(f'{claim["source"]}: "{claim["quote"]}"')
        return "\n".join(lines)

    def run_team(self, job: Job, *, has_review: bool = False) -> str:
        """Return the answer of a team.

        Args:
            has_review: True: one more call reads the reports and the answer, and passes it.
        """
        tasks = json.loads(self._run(ORCHESTRATOR, _with_paths(job.request, job), {}))
        with ThreadPoolExecutor(len(tasks)) as pool:
            reports = list(pool.map(lambda task: self._run(WORKERS, task, job.documents), tasks))
        texts = "\n\n".join(f"<report>\n{report}\n</report>" for report in reports)
        answer = self._run(WRITER, f"{texts}\n\nRequest: {job.request}", {})
        if has_review:
            material = f"{texts}\n\n<answer>\n{answer}\n</answer>"
            verdict = self._run(REVIEWER, f"{material}\n\nRequest: {job.request}", {})
            if verdict != PASSED:
                raise RuntimeError(f"the review of the script was {verdict!r}")
        return answer

    def _run(
        self,
        system: str,
        task: str,
        documents: Mapping[str, bytes],
        more_options: Mapping[str, Any] | None = None,
    ) -> str:
        options = {**self._options, "system": system, **(more_options or {})}
        if documents:
            options["tools"] = [READ_DOCUMENT]
        messages: list[Any] = [{"role": "user", "content": task}]
        for _ in range(MAX_TURNS):
            message = self._client.messages.create(messages=messages, **options)
            if message.stop_reason != "tool_use":
                return "".join(block.text for block in message.content if block.type == "text")
            messages.append(message.to_param())
            results: list[dict[str, Any]] = []
            for block in message.content:
                if block.type == "tool_use":
                    text = documents[str(block.input["path"])].decode()
                    results.append(
                        {"type": "tool_result", "tool_use_id": block.id, "content": text}
                    )
            messages.append({"role": "user", "content": results})
        raise RuntimeError("the agent did not end")


def _join_documents(job: Job) -> str:
    texts: list[str] = []
    for path, text in job.documents.items():
        texts.append(f'<document path="{path}">\n{text.decode()}\n</document>')
    return "\n\n".join([*texts, job.request])


def _with_paths(request: str, job: Job) -> str:
    return f"{request}\n\nDocuments: {', '.join(job.paths)}"
