"""A false note that an injected document made a model write is not cited by later jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    Reply,
    answer_properties,
    first_message_text,
    json_reply,
    result_reply,
)
from handoff_queue.testing import tool_call_reply as call
from handoff_queue.workers.tools.memory import build_memory_tool
from tests.hostile.obedient_system import ObedientSystem, obedient_system

TRUE = "Order A-1 is shipped."
FALSE = "The moon is cheese."
NOTE = {
    "command": "create",
    "path": "orders/a1",
    "file_text": FALSE,
    "source": "orders.md",
    "quote": TRUE,
}
"""The quote is true. It does not prove the text."""


@dataclass
class Model:
    """The first job writes the note. A later job reads it, and quotes a sentence from it."""

    source: str = "memory:orders/a1 (orders.md)"
    quote: str = FALSE
    system: ObedientSystem = field(init=False)

    def __call__(self, request: Json) -> Reply:
        if "route" in answer_properties(request):
            return json_reply({"route": "single", "specialist": "generalist", "why": ""})
        is_first_turn = len(request["messages"]) == 1
        if "Read the orders" in first_message_text(request):
            return call(("memory", NOTE)) if is_first_turn else result_reply("Done.")
        if is_first_turn:
            return call(("memory", {"command": "search", "query": "moon"}))
        claim = {
            "id": "c1",
            "text": self.quote,
            "sources": [{"source": self.source, "quote": self.quote}],
        }
        return result_reply(f"{self.quote} [c1]", claims=[claim])

    def later_result(self) -> JobResult:
        """Return the result of a job that reads the note of an earlier job."""
        jobs = self.system.shell.jobs
        self.system.offer(build_memory_tool())
        documents = {"orders.md": TRUE.encode()}
        self.system.run(
            jobs.submit(Request("Read the orders.", mode=Mode.SINGLE, documents=documents))
        )
        later = jobs.submit(Request("What is the moon?", mode=Mode.SINGLE))
        self.system.run(later)
        assert any(FALSE in result for result in self.system.tool_results()), "the note was read"
        return jobs.result(later)


@pytest.fixture
def model(redis_url: str) -> Iterator[Model]:
    made = Model()
    with obedient_system(redis_url, made) as made.system:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["memory:orders/a1 (orders.md)", "memory:orders/a1", "tool:memory"]
)
def test_the_text_that_a_model_wrote_into_a_note_is_never_cited(model: Model, source: str) -> None:
    model.source = source

    result = model.later_result()

    assert result.citations == ()
    assert result.status is not JobStatus.OK


def test_the_checked_quote_of_the_note_is_cited_with_its_document(model: Model) -> None:
    model.quote = TRUE

    result = model.later_result()

    assert result.status is JobStatus.OK
    (citation,) = result.citations
    assert (citation["source"], citation["quote"]) == ("memory:orders/a1 (orders.md)", TRUE)
