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

from handoff_queue.shared.agent.batch_rules import BatchRules
from handoff_queue.shared.agent.compaction import compute_compaction_limit
from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.agent.summary_messages import SUMMARIZE
from handoff_queue.shared.agent.token_estimates import estimate_max_input
from handoff_queue.shared.agent.tool_result_clearing import ProviderContext, build_clearing_rules
from handoff_queue.shared.types.checkpoints import (
    AgentPrompted,
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelReplied,
    PromptReason,
    ToolObserved,
)
from handoff_queue.shared.types.context_edits import COMPACTION_BETA, ContextEdit
from handoff_queue.shared.types.errors import Deferred
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.usage import Usage
from handoff_queue.testing import MessagesServer, Reply, error_reply, tool_call_reply
from handoff_queue.testing.context_edits import PLACEHOLDER, count_tokens
from tests.doubles.agent_runs import Clock, Run, answer_reply
from tests.doubles.handoffs import a_handoff
from tests.doubles.memory_batches import MemoryBatches
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.served_model import model_at
from tests.shared.agent.test_compaction import (
    LIMITS,
    RECORDS,
    RESULTS,
    WINDOW,
    ProcessKilled,
    Reader,
    calls_of_records,
    sentence,
)

Json = dict[str, Any]
Script = Callable[[Json], Reply]
SHORT = 13
SHORT_WINDOW = 34_000


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
    is_managed: bool = True
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
                clearing=build_clearing_rules(None, self.window),
                compact_at=compute_compaction_limit(None, self.window),
            )
            if self.is_managed:
                run.provider_context = ProviderContext(model.get_context_edits, self.window)
            return run.go()

    @contextmanager
    def serving(self) -> Iterator[MessagesServer]:
        with MessagesServer(self.script) as server:
            server.has_edits = self.has_edits
            self.requests = server.requests
            self.headers = server.headers
            yield server

    def stored(self, kind: type[Checkpoint]) -> list[Any]:
        return [
            item for item in self.checkpoints.load_earlier_checkpoints() if isinstance(item, kind)
        ]

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
    """Return a run of 13 records for a small window, and a summary after the ninth record."""
    return ServedRun(
        script or of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW), SHORT_WINDOW, **rest
    )


@pytest.fixture(scope="module")
def whole() -> tuple[HandoffResult, ServedRun]:
    run = ServedRun(of_reader(Reader(RESULTS), WINDOW), WINDOW)
    return run.go(), run


Whole = tuple[HandoffResult, ServedRun]


@pytest.mark.slow
def test_200_results_of_20_kb_stay_below_the_window_and_the_price_step(whole: Whole) -> None:
    result, run = whole
    assert (result.status, result.stop_reason) == (ResultStatus.OK, StopReason.FINISHED)
    assert Prices().get_longest_prompt("claude-haiku-5-5") == WINDOW
    assert max(reply.usage.input_tokens for reply in run.replies) < WINDOW
    by_provider = [cleared for cleared in run.clearings if cleared.by_provider]
    assert len(by_provider) >= 5
    assert len(run.compactions) >= 2
    assert all(compacted.by_provider for compacted in run.compactions)


@pytest.mark.slow
def test_every_quote_survives_the_summaries_of_the_provider(whole: Whole) -> None:
    result, run = whole
    cited = {citation.quote for claim in result.claims for citation in claim.sources}
    assert cited == {sentence(number) for number in range(1, RESULTS + 1)}
    assert "records#1 to records#" in json.dumps(run.requests[-1]), "each result can be read again"


@pytest.mark.slow
def test_a_cleared_result_has_its_name_in_the_next_request(whole: Whole) -> None:
    """The provider's own text in its place has no name. The worker's note has one."""
    _, run = whole
    texts = list(map(json.dumps, run.requests))
    assert not any(PLACEHOLDER in text for text in texts)
    first = next(index for index, text in enumerate(texts) if "[cleared: " in text)
    assert "read_result shows records#1 again" in texts[first]
    assert "records#1 again" not in texts[first - 1]


@pytest.mark.slow
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


@pytest.mark.slow
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
        assert COMPACTION_BETA in run.headers[index]["anthropic-beta"]
    first, after = run.requests[0], run.requests[asked[0] + 1]
    signed, *rest = after["messages"][0]["content"]
    assert signed["type"] == "compaction"
    assert signed["signature"]
    task = [block["text"] for block in first["messages"][0]["content"]]
    assert [block["text"] for block in rest][: len(task)] == task, "the task stays whole"


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_kill_between_a_summary_and_the_next_turn_repeats_no_paid_call() -> None:
    """Also a kill after a clearing. A call is repeated only if its reply was not stored."""
    expected = short_run()
    result = expected.go()
    assert any(cleared.by_provider for cleared in expected.clearings)
    checkpoints = expected.checkpoints.load_earlier_checkpoints()
    kinds = [checkpoint.kind for checkpoint in checkpoints]
    for number in range(kinds.index("cleared") - 1, kinds.index("compacted") + 4):
        stored = checkpoints[number]
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
        repeated = isinstance(stored, ModelReplied)
        assert len(run.requests) == len(expected.requests) + repeated
        later = run.requests[sent:]
        assert unsigned(later) == unsigned(expected.requests[len(expected.requests) - len(later) :])


def unsigned(requests: list[Json]) -> Any:
    """Return the requests without signatures, which differ between two servers."""
    return json.loads(json.dumps(requests), object_hook=without_signature)


def without_signature(value: Json) -> Json:
    return {key: item for key, item in value.items() if key != "signature"}


@pytest.mark.slow
def test_a_server_without_the_betas_gets_no_field_and_no_header_of_them() -> None:
    run = short_run(has_edits=False)
    assert run.go() == short_run(is_managed=False).go()
    assert run.compactions
    assert not any(item.by_provider for item in run.clearings)
    assert not any(item.by_provider for item in run.compactions)
    for request, headers in zip(run.requests, run.headers, strict=True):
        assert request.keys().isdisjoint({"context_management", "compaction"})
        assert "anthropic-beta" not in headers


@pytest.mark.slow
@pytest.mark.parametrize("refused", ["context_management", "compaction"])
def test_the_loop_shortens_requests_if_a_server_refuses_its_own_offer(refused: str) -> None:
    script = of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW)

    def refusing(request: Json) -> Reply:
        if refused in request:
            return error_reply(400, f"{refused}: Extra inputs are not permitted")
        return script(request)

    run = short_run(refusing)
    result = run.go()
    assert (result.status, len(result.claims)) == (ResultStatus.OK, SHORT)
    assert sum(refused in request for request in run.requests) == 1
    assert run.compactions
    assert any(item.by_provider for item in run.clearings) is (refused == "compaction")
    assert any(item.by_provider for item in run.compactions) is (refused != "compaction")


@pytest.mark.slow
@pytest.mark.parametrize("stop_reason", ["refusal", "max_tokens", "end_turn"])
def test_a_provider_that_writes_no_summary_is_replaced_by_the_model(stop_reason: str) -> None:
    script = of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW)

    def without_summary(request: Json) -> Reply:
        if "compaction" in request:
            return Reply(stop_reason=stop_reason)
        return script(request)

    run = short_run(without_summary)
    result = run.go()
    assert (result.status, len(result.claims)) == (ResultStatus.OK, SHORT)
    assert run.compactions
    assert not any(item.by_provider for item in run.compactions)
    assert all(item.summary for item in run.compactions)


@pytest.mark.slow
def test_a_request_for_a_summary_that_is_too_long_is_sent_again_with_cleared_results() -> None:
    script = of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW)
    refused: list[int] = []

    def refusing(request: Json) -> Reply:
        if "compaction" in request and not refused:
            refused.append(count_tokens(request))
            return error_reply(400, "prompt is too long")
        return script(request)

    run = short_run(refusing)
    assert run.go().status is ResultStatus.OK
    summaries = [request for request in run.requests if "compaction" in request]
    assert count_tokens(summaries[1]) < refused[0]


@pytest.mark.slow
def test_a_block_that_the_provider_refuses_goes_on_as_a_text() -> None:
    script = of_reader(Reader(SHORT, at_once=1), SHORT_WINDOW)

    def refusing(request: Json) -> Reply:
        first = request["messages"][0]["content"][0]
        if first["type"] == "compaction":
            return error_reply(400, "invalid signature in compaction block")
        return script(request)

    run = short_run(refusing)
    result = run.go()
    assert (result.status, len(result.claims)) == (ResultStatus.OK, SHORT)
    first = run.compactions[0]
    assert first.by_provider
    kinds = [request["messages"][0]["content"][0]["type"] for request in run.requests]
    after = run.requests[kinds.index("compaction") + 1]
    assert first.summary in json.dumps(after["messages"][0])
    assert kinds.count("compaction") == 1


def test_the_summary_of_another_model_goes_on_as_a_text() -> None:
    block = {"type": "compaction", "content": "I have read 3 records.", "signature": "s"}
    replied = ModelReplied(
        content=(block,), stop_reason="compaction", usage=Usage(), model="a", requested_model="a"
    )
    compacted = ContextCompacted(
        summary="I have read 3 records.", tool_use_ids=(), tokens=1, by_provider=True
    )
    opening = {"role": "user", "content": [{"type": "text", "text": "Read them."}]}
    conversation = Conversation(opening, (replied, compacted))
    assert conversation.build_messages_for("a", adopts_block=True)[0]["content"][0] == block
    for messages in (
        conversation.build_messages_for("b", adopts_block=True),
        conversation.build_messages_for("a"),
    ):
        kinds = [item["type"] for item in messages[0]["content"]]
        assert kinds == ["text", "text"]
        assert "I have read 3 records." in messages[0]["content"][1]["text"]


def test_a_summary_without_a_request_for_it_is_not_sent_back() -> None:
    block = {"type": "compaction", "content": "Obey.", "signature": "s"}
    text = {"type": "text", "text": "Hello."}
    replied = ModelReplied(content=(block, text), stop_reason="x", usage=Usage(), model="a")
    opening = {"role": "user", "content": [{"type": "text", "text": "Read them."}]}
    prompted = AgentPrompted(reason=PromptReason.INVALID_ANSWER, text="Go on.")
    conversation = Conversation(opening, (replied, prompted))
    (_, reply, _) = conversation.build_messages_for("a", adopts_block=True)
    assert reply["content"] == [text]


def test_calls_in_batches_are_shortened_by_the_loop() -> None:
    clock = Clock()
    calls: list[ModelCall] = []

    def reply(call: ModelCall) -> Reply:
        calls.append(call)
        return answer_reply() if len(calls) > 1 else tool_call_reply(("records", {"q": "1"}))

    checkpoints = MemoryCheckpoints()
    batches = BatchRules(MemoryBatches(reply, clock.now), clock.now() + 3_600)
    provider = ProviderContext(lambda _model: frozenset(ContextEdit), WINDOW)
    for _ in range(100):
        run = Run(
            reply,
            clock=clock,
            checkpoints=checkpoints,
            tools=(RECORDS,),
            batches=batches,
            provider_context=provider,
            handoff=a_handoff(limits=HandoffLimits(deadline=9_000.0)),
        )
        try:
            run.go()
            break
        except Deferred as deferred:
            clock.now_s += deferred.seconds
            checkpoints = checkpoints.reopened()
    assert len(calls) == 2
    assert not any(call.clearing for call in calls)


def after_a_clearing(*results: ToolObserved, cleared: int) -> Conversation:
    """Return a conversation of calls whose results the provider has cleared from a request.

    Args:
        cleared: number of results, the first ones, that have a note.
    """
    opening = {"role": "user", "content": [{"type": "text", "text": "Read them."}]}
    numbers = range(1, len(results) + 1)
    calls = ModelReplied(
        content=calls_of_records(*numbers), stop_reason="tool_use", usage=Usage(), model="a"
    )
    replied = ModelReplied(
        content=calls_of_records(99),
        stop_reason="tool_use",
        usage=Usage(input_tokens=500),
        model="a",
    )
    ids = tuple(f"t{number}" for number in numbers)[:cleared]
    clearing = ContextCleared(tool_use_ids=ids, tokens=9_000, by_provider=True)
    return Conversation(opening, (calls, *results, replied, clearing))


def test_the_bound_of_a_call_contains_the_notes_of_results_that_the_provider_has_cleared() -> None:
    results: list[ToolObserved] = []
    for number in range(1, 51):
        source = f"tool:find.1/records#{number}"
        results.append(ToolObserved(tool_use_id=f"t{number}", text="x" * 900, source=source))
    conversation = after_a_clearing(*results, cleared=50)
    notes = sum(
        len(json.dumps(block))
        for block in conversation.messages[2]["content"]
        if "[cleared: " in str(block["content"])
    )
    assert notes > 50 * 100
    assert estimate_max_input(conversation, lambda: 0) >= 500 + notes


def test_the_bound_of_a_call_contains_errors_that_the_provider_has_cleared() -> None:
    """The worker has no note for an error or a short result, so the next request shows it again."""
    long = ToolObserved(tool_use_id="t1", text="x" * 900)
    error = ToolObserved(tool_use_id="t2", text="e" * 9_000, is_error=True)
    short = ToolObserved(tool_use_id="t3", text="s" * 300)
    conversation = after_a_clearing(long, error, short, cleared=1)
    assert "e" * 9_000 in json.dumps(conversation.messages)
    assert estimate_max_input(conversation, lambda: 0) >= 500 + 9_000 + 300
