"""An answer can cite the result of a user's tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.checkpoints import Checkpoint
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.testing import Reply, tool_call_reply
from tests.doubles.agent_runs import Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_tool
from tests.doubles.memory_checkpoints import MemoryCheckpoints


def answer_of(arguments: dict[str, Any]) -> str:
    if arguments["q"] == "broken":
        raise ToolFailed("order broken is shipped")
    return f"order {arguments['q']}\nis “shipped”"


ORDERS = replace(a_tool("orders", answer_of), is_source=True)
SEARCH = a_tool("search", answer_of)


def cites(source: str, quote: str = 'order B is "shipped"') -> Reply:
    sources = [{"source": source, "quote": quote}]
    return answer_reply(
        "B [c1].", claims=[{"id": "c1", "text": "B is shipped.", "sources": sources}]
    )


def run_of(answer: Reply, *arguments: str, checkpoints: MemoryCheckpoints | None = None) -> Run:
    asks = tool_call_reply(*(("orders", {"q": argument}) for argument in arguments or ("A", "B")))
    return run_with_replies(
        asks, answer, answer, tools=(ORDERS,), checkpoints=checkpoints or MemoryCheckpoints()
    )


def sources_of(result: HandoffResult) -> list[str]:
    return [citation.source for claim in result.claims for citation in claim.sources]


@pytest.mark.parametrize(
    "name",
    [
        "tool:find.1/orders#2",
        "[source: tool:find.1/orders#2]",
        "tool:orders#2",
        "orders#2",
        " find.1/orders#2 ",
    ],
)
def test_a_quote_is_checked_in_the_result_that_it_names(name: str) -> None:
    result = run_of(cites(name)).go()
    assert result.status is ResultStatus.OK
    citation = result.claims[0].sources[0]
    text = "order B\nis “shipped”"
    assert citation.source == "tool:find.1/orders#2"
    assert (citation.quote, citation.digest) == (text, compute_digest(text))
    assert text[citation.start : citation.end] == citation.quote


def test_a_tool_that_was_called_once_needs_no_number() -> None:
    assert sources_of(run_of(cites("orders"), "B").go()) == ["tool:find.1/orders#1"]


@pytest.mark.parametrize(
    ("name", "quote"),
    [
        ("tool:find.1/orders#1", "order B is shipped"),
        ("tool:find.1/orders#3", "order B is shipped"),
        ("orders", 'order B is "shipped"'),
        ("tool:find.1/orders#2", "[source: tool:find.1/orders#2]"),
    ],
    ids=["another result", "no such call", "any of two results", "the line above the result"],
)
def test_a_quote_that_the_named_result_does_not_hold_is_dropped(name: str, quote: str) -> None:
    result = run_of(cites(name, quote)).go()
    assert (sources_of(result), result.status) == ([], ResultStatus.PARTIAL)


def test_a_failed_call_is_not_a_source() -> None:
    assert sources_of(run_of(cites("orders", "order broken is shipped"), "broken").go()) == []


def test_a_result_of_a_tool_that_searches_documents_is_not_a_source() -> None:
    asks = tool_call_reply(("search", {"q": "B"}))
    run = run_with_replies(asks, cites("search"), cites("search"), tools=(SEARCH,))
    assert sources_of(run.go()) == []


def test_the_model_reads_the_name_above_the_result() -> None:
    run = run_of(cites("orders#2"))
    run.go()
    results = [block["content"] for block in run.calls[-1].messages[-1]["content"]]
    assert results == [
        "[source: tool:find.1/orders#1]\norder A\nis “shipped”",
        "[source: tool:find.1/orders#2]\norder B\nis “shipped”",
    ]


def test_a_resumed_handoff_cites_its_earlier_results() -> None:
    checkpoints = MemoryCheckpoints()

    class Died(BaseException):
        pass

    def die(_: Checkpoint) -> None:
        if len(checkpoints.saved) == 3:  # the reply and both results
            raise Died

    checkpoints.on_checkpoint = die
    with pytest.raises(Died):
        run_of(cites("orders#2"), checkpoints=checkpoints).go()

    resumed = run_with_replies(
        cites("orders#2"), tools=(ORDERS,), checkpoints=checkpoints.reopened()
    )

    assert sources_of(resumed.go()) == ["tool:find.1/orders#2"]
