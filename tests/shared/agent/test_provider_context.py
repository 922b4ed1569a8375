"""A handoff whose file says `managed_by: provider` lets the provider clear old results and write
summaries. Every citation survives, a kill repeats nothing, and the loop does the work itself where
the provider cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from handoff_queue.shared.agent.compaction import compaction_limit
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.provider_context import ProviderContext
from handoff_queue.shared.agent.summary_messages import SUMMARIZE
from handoff_queue.shared.agent.tool_result_clearing import clearing_rules
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelReplied,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.testing import MessagesServer, Reply, error_reply
from handoff_queue.testing.context_edits import PLACEHOLDER, count_tokens
from tests.doubles.agent_runs import Run
from tests.doubles.handoffs import a_handoff
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.served_model import model_at
from tests.shared.agent.test_compaction import (
    LIMITS,
    RECORDS,
    RESULTS,
    WINDOW,
    ProcessKilled,
    Reader,
    sentence,
)

Json = dict[str, Any]
Script = Callable[[Json], Reply]
SHORT = 20
SHORT_WINDOW = 34_000
CLEARING = "context-management-2025-06-27"
COMPACTION = "compact-2026-09-04"


def of_reader(reader: Reader, window: int) -> Script:
    """Return the script of a model with this window that works like the reader."""

    def script(request: Json) -> Reply:
        tokens = count_tokens(request)
        if tokens > window:
            return error_reply(400, f"prompt is too long: {tokens} tokens > {window} maximum")
        messages = request["messages"]
        if "compaction" in request:
            text = request["compaction"]["instructions"]
            messages = [*messages, {"role": "user", "content": [{"type": "text", "text": text}]}]
        system = SimpleNamespace(text=json.dumps(request["system"]))
        reply = reader(SimpleNamespace(system=system, messages=messages, tools=request["tools"]))
        return replace(reply, usage={"input_tokens": tokens, "output_tokens": 2_000})

    return script


@dataclass(slots=True)
class ServedRun:
    """A handoff whose context the provider manages, with its requests and headers."""

    script: Script
    window: int
    checkpoints: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    has_edits: bool = True
    requests: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def go(self) -> HandoffResult:
        with self.serving() as server:
            return self.attempt(server)

    def attempt(self, server: MessagesServer) -> HandoffResult:
        """Run the handoff in a new process."""
        with model_at(server.url) as model:
            run = Run(
                lambda _: Reply(),
                model=model,
                handoff=a_handoff(limits=LIMITS),
                tools=(RECORDS,),
                checkpoints=self.checkpoints,
                clearing=clearing_rules(None, self.window),
                compact_at=compaction_limit(None, self.window),
                provider_context=ProviderContext(model.context_edits, self.window),
            )
            return run.go()

    @contextmanager
    def serving(self) -> Iterator[MessagesServer]:
        with MessagesServer(self.script) as server:
            server.has_edits = self.has_edits
            self.requests = server.requests
            self.headers = server.headers
            yield server

    def stored(self, kind: type[Checkpoint]) -> list[Any]:
        return [item for item in self.checkpoints.earlier_checkpoints() if isinstance(item, kind)]

    @property
    def replies(self) -> list[ModelReplied]:
        return self.stored(ModelReplied)

    @property
    def clearings(self) -> list[ContextCleared]:
        return self.stored(ContextCleared)

    @property
    def compactions(self) -> list[ContextCompacted]:
        return self.stored(ContextCompacted)


def short_run(script: Script | None = None, **rest: Any) -> ServedRun:
    """Return a run of 20 records for a small window."""
    return ServedRun(
        script or of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW), SHORT_WINDOW, **rest
    )


@pytest.fixture(scope="module")
def whole() -> tuple[HandoffResult, ServedRun]:
    run = ServedRun(of_reader(Reader(RESULTS), WINDOW), WINDOW)
    return run.go(), run


Whole = tuple[HandoffResult, ServedRun]


def test_200_results_of_20_kb_stay_below_the_window_and_the_price_step(whole: Whole) -> None:
    result, run = whole
    assert (result.status, result.stop_reason) == (ResultStatus.OK, StopReason.FINISHED)
    assert Prices().longest_prompt("claude-haiku-5-5") == WINDOW
    assert max(reply.usage.input_tokens for reply in run.replies) < WINDOW
    by_provider = [cleared for cleared in run.clearings if cleared.by_provider]
    assert len(by_provider) >= 5
    assert len(run.compactions) >= 2
    assert all(compacted.by_provider for compacted in run.compactions)


def test_every_quote_survives_the_summaries_of_the_provider(whole: Whole) -> None:
    result, run = whole
    cited = {citation.quote for claim in result.claims for citation in claim.sources}
    assert cited == {sentence(number) for number in range(1, RESULTS + 1)}
    assert "records#1 to records#" in json.dumps(run.requests[-1]), "each result can be read again"


def test_a_cleared_result_has_its_name_in_the_next_request(whole: Whole) -> None:
    """The provider's own text in its place has no name. The worker's note has one."""
    _, run = whole
    texts = list(map(json.dumps, run.requests))
    assert not any(PLACEHOLDER in text for text in texts)
    first = next(index for index, text in enumerate(texts) if "[cleared: " in text)
    assert "read_result shows records#1 again" in texts[first]
    assert "records#1 again" not in texts[first - 1]


def test_results_that_the_model_has_not_seen_are_not_cleared() -> None:
    seen: list[int] = []
    reader = of_reader(Reader(RESULTS // 5, at_once=5), WINDOW)

    def script(request: Json) -> Reply:
        blocks = request["messages"][-1]["content"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        seen.append(sum(block["content"] != PLACEHOLDER for block in results))
        return reader(request)

    run = ServedRun(script, WINDOW)
    assert run.go().status is ResultStatus.OK
    assert run.clearings
    assert set(seen[1:]) <= {0, 5}, "0: the first message after a summary"


def test_a_request_for_a_summary_repeats_the_conversation_and_asks_in_its_own_field(
    whole: Whole,
) -> None:
    _, run = whole
    asked = [index for index, request in enumerate(run.requests) if "compaction" in request]
    assert len(asked) == len(run.compactions)
    for index in asked:
        request, before = run.requests[index], run.requests[index - 1]
        assert request["compaction"] == {"type": "summarize", "instructions": SUMMARIZE}
        assert SUMMARIZE not in json.dumps(request["messages"])
        assert request.keys().isdisjoint({"context_management", "tool_choice", "output_config"})
        assert (request["system"], request["tools"]) == (before["system"], before["tools"])
        assert COMPACTION in run.headers[index]["anthropic-beta"]
    first, after = run.requests[0], run.requests[asked[0] + 1]
    signed, *rest = after["messages"][0]["content"]
    assert signed["type"] == "compaction"
    assert signed["signature"]
    task = [block["text"] for block in first["messages"][0]["content"]]
    assert [block["text"] for block in rest][: len(task)] == task, "the task stays whole"


def test_a_summary_is_reserved_before_its_call_and_all_its_tokens_are_paid(whole: Whole) -> None:
    result, run = whole
    counted = sum(count_tokens(request) for request in run.requests if "compaction" in request)
    summaries = [reply for reply in run.replies if reply.stop_reason == "compaction"]
    assert sum(reply.usage.input_tokens for reply in summaries) == counted
    assert [reply.usage.output_tokens for reply in summaries] == [2_000] * len(summaries)
    assert result.turns == len(run.requests) == len(run.replies)
    assert len(run.checkpoints.reserved) == len(run.replies)
    for worst, reply in zip(run.checkpoints.reserved, run.replies, strict=True):
        assert reply.usage.input_tokens <= worst.input_tokens
        assert reply.usage.output_tokens <= worst.output_tokens
        assert reply.usage.cost_microusd is not None
        assert worst.microusd is not None
        assert 0 < reply.usage.cost_microusd <= worst.microusd


def test_a_handoff_that_is_killed_at_any_checkpoint_sends_the_same_requests() -> None:
    expected = short_run()
    result = expected.go()
    assert any(cleared.by_provider for cleared in expected.clearings)
    assert len(expected.compactions) >= 2
    for number, stored in enumerate(expected.checkpoints.earlier_checkpoints()):
        if isinstance(stored, ContextCleared) and stored.by_provider:
            continue  # the store writes it together with its reply
        killed = MemoryCheckpoints()

        def die(
            _checkpoint: Checkpoint, killed: MemoryCheckpoints = killed, at: int = number
        ) -> None:
            if len(killed.saved) == at:
                raise ProcessKilled

        killed.on_checkpoint = die
        run = short_run(checkpoints=killed)
        with run.serving() as server:
            with pytest.raises(ProcessKilled):
                run.attempt(server)
            sent = len(run.requests)
            run.checkpoints = killed.reopened()
            assert run.attempt(server) == result
        assert len(run.requests) <= len(expected.requests) + 1, "only the last call is repeated"
        later = run.requests[sent:]
        assert unsigned(later) == unsigned(expected.requests[len(expected.requests) - len(later) :])


def unsigned(requests: list[Json]) -> Any:
    """Return the requests without signatures, which differ between two servers."""
    return json.loads(json.dumps(requests), object_hook=without_signature)


def without_signature(value: Json) -> Json:
    return {key: item for key, item in value.items() if key != "signature"}
