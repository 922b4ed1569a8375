"""LangGraph's supervisor (`langgraph-supervisor`) with one worker, as in its README.

The packages are in `requirements-bench.txt`. The process runs the jobs in order, and prints
their answers as JSON: `python -m benchmarks.tokens.langgraph_supervisor_jobs URL MODEL`.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor

from benchmarks.tokens.by_hand import MAX_TOKENS, WORKERS
from benchmarks.tokens.jobs import Job, list_jobs

SUPERVISOR = (
    "You are a team supervisor. For the facts of a document, use the researcher, one document at a"
    " time. Then write one answer to the request from the reports. Add no facts. Keep the"
    " footnotes with sources and quotes. Answer in Markdown."
)


def run(job: Job, model: Any) -> str:
    """Return the answer of the graph."""
    documents = job.documents

    @tool  # type: ignore[untyped-decorator]
    def read_document(path: str) -> str:
        """Returns the text of a document."""
        return documents[path].decode()

    researcher = create_react_agent(
        model=model, tools=[read_document], name="researcher", prompt=WORKERS
    )
    graph = create_supervisor([researcher], model=model, prompt=SUPERVISOR).compile()
    request = f"{job.request}\n\nDocuments: {', '.join(job.paths)}"
    state = graph.invoke({"messages": [{"role": "user", "content": request}]})
    return str(state["messages"][-1].text)


def main() -> None:
    warnings.filterwarnings("ignore", message="create_react_agent")
    url, model_name = sys.argv[1:]
    model = ChatAnthropic(
        model_name=model_name,
        base_url=url,
        api_key="test-key",
        max_tokens_to_sample=MAX_TOKENS,
        max_retries=0,
    )
    print(json.dumps([run(job, model) for job in list_jobs()]))


if __name__ == "__main__":
    main()
