"""The calls of a specialist share a prefix that the provider caches. Calls of a fan-out wait for
the first call, and a cache for an hour is paid only where the next call comes late.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tokens.prompt_cache import PromptCache
from handoff_queue.shared.agent.model_turn import FILLS_CACHE
from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.prompt_cache_prefixes import (
    CACHED_LONG_S,
    CACHED_S,
    MAX_WAIT_S,
    PromptCaches,
    compute_prefix,
)
from handoff_queue.shared.providers.anthropic.request import build_request
from handoff_queue.shared.specialists import read_specialist
from handoff_queue.shared.types.errors import Deferred, ModelUnreachable
from handoff_queue.shared.types.handoff import Feedback, ResultStatus
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.shared.types.names import ROLES
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.roles.briefs import read_role
from handoff_queue.testing import Reply, tool_call_reply
from handoff_queue.workers.tools.registry import BUILT_IN
from tests.doubles.agent_runs import Clock, Run, answer_reply, run_with_replies
from tests.doubles.handoffs import a_handoff, a_manifest, a_result, a_tool, context_of
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.memory_rate_limiter import MemoryRateLimiter

LOOK = replace(a_tool("look", lambda _: "found"), description="x" * 5_000)
WRITTEN = Usage(input_tokens=2_000, cache_write_tokens=1_500)
SPECIALISTS = sorted(Path(__file__).parents[3].glob("workers/specialists/*.md"))


@dataclass(slots=True)
class WatchedClock(Clock):
    """A clock that calls a function at each wait."""

    on_wait: Callable[[int], None] = field(default=lambda _number: None)
    """Its argument is the number of the wait, from 1."""

    def wait(self, seconds: float) -> None:
        Clock.wait(self, seconds)
        self.on_wait(len(self.waited))


def a_run(**rest: Any) -> Run:
    return run_with_replies(answer_reply(), tools=(LOOK,), **rest)


def prefix() -> str:
    """Return the prefix of the calls of `a_run`."""
    run = a_run()
    run.go()
    return compute_prefix("", run.calls[0]).name


def test_a_deferred_first_call_does_not_hold_up_the_others() -> None:
    caches, clock = PromptCaches(), Clock()
    busy = MemoryRateLimiter(now=clock.now, known=True, until=clock.now_s + 500, why="rate limit")
    checkpoints = MemoryCheckpoints(limiters={"bucket": busy})
    run = a_run(clock=clock, caches=caches, checkpoints=checkpoints, bucket="bucket")

    with pytest.raises(Deferred):
        run.go()

    assert caches.claim_prefix(prefix(), clock.now())


def caches_in_use(clock: Clock) -> PromptCaches:
    """Return caches in which another call has begun to write the prefix of `a_run`."""
    caches = PromptCaches()
    assert caches.claim_prefix(prefix(), clock.now())
    return caches


def test_a_call_waits_until_an_equal_prefix_is_cached() -> None:
    clock = WatchedClock()
    caches = caches_in_use(clock)

    def begin(number: int) -> None:
        if number == 3:
            caches.record_reply_begun(prefix(), clock.now(), WRITTEN)

    clock.on_wait = begin
    run = a_run(clock=clock, caches=caches)
    assert run.go().status is ResultStatus.OK
    assert len(clock.waited) == 3
    assert any(FILLS_CACHE in doing for doing, _ in run.checkpoints.heartbeats)
    assert len(run.checkpoints.reserved) == 1


def test_a_call_waits_no_longer_for_a_call_that_failed() -> None:
    clock = WatchedClock()
    caches = caches_in_use(clock)
    clock.on_wait = lambda _number: caches.record_call_ended(prefix())
    a_run(clock=clock, caches=caches).go()
    assert len(clock.waited) == 1


def test_a_first_call_that_hangs_or_died_costs_the_others_a_few_seconds() -> None:
    clock = WatchedClock()
    a_run(clock=clock, caches=caches_in_use(clock)).go()
    assert sum(clock.waited) == MAX_WAIT_S


def test_a_failed_call_lets_the_next_one_write_the_prefix() -> None:
    caches = PromptCaches()
    failing = run_with_replies(ModelUnreachable("broken"), tools=(LOOK,), caches=caches)
    failing.go()
    assert caches.claim_prefix(prefix(), failing.clock.now())


def test_a_prefix_that_is_cached_or_is_never_cached_needs_no_wait() -> None:
    caches = PromptCaches()
    for name, usage in (("cached", WRITTEN), ("never", Usage(input_tokens=2_000))):
        assert caches.claim_prefix(name, 0)
        caches.record_reply_begun(name, 1, usage)
    assert caches.claim_prefix("cached", CACHED_S)
    assert caches.claim_prefix("cached", 2 * CACHED_S), "this call writes it again"
    assert not caches.claim_prefix("cached", 2 * CACHED_S)
    assert caches.claim_prefix("never", 2 * CACHED_S)
    assert caches.claim_prefix("never", 2 * CACHED_S)


def test_a_short_prefix_needs_no_wait() -> None:
    run = run_with_replies(answer_reply())
    run.go()
    caches = PromptCaches()
    assert caches.claim_prefix(compute_prefix("", run.calls[0]).name, run.clock.now())
    again = run_with_replies(answer_reply(), caches=caches)
    again.go()
    assert again.clock.waited == []


def test_only_the_first_call_of_a_handoff_waits() -> None:
    clock = WatchedClock()
    caches = PromptCaches()
    run = Run(lambda _: answer_reply(), tools=(LOOK,), clock=clock, caches=caches)

    def reply(_call: ModelCall) -> Reply:
        if len(run.calls) > 1:
            return answer_reply()
        clock.now_s += 2 * CACHED_S
        assert caches.claim_prefix(prefix(), clock.now())
        return tool_call_reply(("look", {"q": "a"}))

    run.scripted = type(run.scripted)(reply)
    run.go()
    assert clock.waited == []


@pytest.mark.parametrize(
    ("gap_s", "is_long"),
    [(CACHED_S - 1, False), (CACHED_S, True), (CACHED_LONG_S - 1, True), (CACHED_LONG_S, False)],
)
def test_a_prefix_that_comes_back_late_is_cached_for_an_hour(gap_s: float, is_long: bool) -> None:
    clock, caches = Clock(), PromptCaches()
    a_run(clock=clock, caches=caches).go()
    clock.now_s += gap_s
    run = a_run(clock=clock, caches=caches)
    run.go()
    mark = {"type": "ephemeral", "ttl": "1h"} if is_long else {"type": "ephemeral"}
    request = build_request(run.calls[0])
    assert request["system"][0]["cache_control"] == mark
    own_mark = request["messages"][-1]["content"][-1]["cache_control"]
    assert own_mark == {"type": "ephemeral"}, "only the next turn repeats it, which comes soon"


def test_a_turn_that_comes_late_is_cached_for_an_hour() -> None:
    clock = Clock()

    def look_slowly(_arguments: object) -> str:
        clock.now_s += 2 * CACHED_S
        return "found"

    run = run_with_replies(
        tool_call_reply(("look", {"q": "a"})),
        answer_reply(),
        tools=(a_tool("look", look_slowly),),
        clock=clock,
    )
    run.go()

    assert [call.caches_for_1h for call in run.calls] == [False, True]


def test_calls_that_wait_for_a_late_prefix_do_not_pay_for_an_hour() -> None:
    """The call for which they wait caches the prefix for an hour."""
    clock, caches = WatchedClock(), PromptCaches()
    caches.record_reply_begun(prefix(), clock.now(), WRITTEN)
    clock.now_s += 2 * CACHED_S
    assert caches.claim_prefix(prefix(), clock.now())
    clock.on_wait = lambda _number: caches.record_reply_begun(prefix(), clock.now(), WRITTEN)

    run = a_run(clock=clock, caches=caches)
    run.go()

    assert clock.waited
    assert not run.calls[0].caches_prefix_for_1h


def test_a_handoff_that_may_wait_for_a_person_is_cached_for_an_hour() -> None:
    run = a_run(may_wait_for_person=True)
    run.go()
    assert run.calls[0].caches_for_1h


def requests_of_two_handoffs(name: str) -> list[dict[str, Any]]:
    """Return the first requests of two handoffs that have nothing in common but the agent."""
    if name in ROLES:
        spec = read_role(name)
    else:
        spec = read_specialist(SPECIALISTS[0].parent / f"{name}.md")
    rest: dict[str, Any] = {"assigned_to": spec.name, "expected_output_format": spec.output_schema}
    feedback = Feedback(author="assessor", text="Shorter.")
    result = a_result()
    second: dict[str, Any] = {
        "handoff_id": build_handoff_id("other", 2),
        "step_id": StepId("other"),
        "attempt": 2,
        "task_description": "Do something else.",
        "context": (context_of(result),),
        "feedback": (feedback,),
    }
    manifest, _ = a_manifest(qdrant="A text.")
    loaded = LoadedPayloads({result.step_id: result}, manifest=manifest)
    requests: list[dict[str, Any]] = []
    for handoff, payloads in (
        (a_handoff(**rest), LoadedPayloads()),
        (a_handoff(**{**rest, **second}), loaded),
    ):
        opening = build_opening(handoff, spec, payloads)
        call = ModelCall(
            "claude-haiku-5-5",
            opening.system,
            (opening.message,),
            spec.max_output_tokens,
            tools=tuple({"name": tool} for tool in spec.tools if tool in BUILT_IN),
            output_schema=spec.output_schema,
        )
        requests.append(build_request(call))
    return requests


@pytest.mark.parametrize("calls", [1, 12])
def test_each_turn_reads_the_whole_request_before_it_from_the_cache(calls: int) -> None:
    """Twelve calls and their results are more blocks than the provider looks back."""
    looks = [("look", {"q": f"{turn}-{number}"}) for turn in range(3) for number in range(calls)]
    turns = [tool_call_reply(*looks[turn * calls : (turn + 1) * calls]) for turn in range(3)]
    run = run_with_replies(*turns, answer_reply(), tools=(LOOK,))
    run.go()

    cache = PromptCache(min_tokens=0)
    before = 0
    for call in run.calls:
        cached = cache.look_up(build_request(call), "job")
        assert cached.read_tokens == before
        before = cached.all_tokens
        cache.write(cached)


@pytest.mark.parametrize("name", [*(path.stem for path in SPECIALISTS), *sorted(ROLES)])
def test_two_requests_of_an_agent_begin_with_the_same_bytes(name: str) -> None:
    first, second = requests_of_two_handoffs(name)
    for part in ("tools", "output_config", "system", "model"):
        assert json.dumps(first.get(part)) == json.dumps(second.get(part))
    assert first["messages"] != second["messages"]


def test_handoffs_with_other_own_rules_share_the_common_prefix() -> None:
    """The provider caches the common part alone, too, so the second call can read it."""
    call = ModelCall("a-model", SystemPrompt("x" * 5_000), (), max_output_tokens=1)
    other = replace(call, system=replace(call.system, handoff_rules="\nName the values."))
    tool = {"name": "t", "description": "Looks.", "input_schema": {}}

    assert compute_prefix("worker", call) == compute_prefix("worker", other)
    assert compute_prefix("worker", call) != compute_prefix("worker", replace(call, tools=(tool,)))


def test_a_prefix_with_a_lone_surrogate_has_a_name() -> None:
    """The description of a foreign tool may have one."""
    tool = {"name": "t", "description": "\ud800", "input_schema": {}}
    call = ModelCall("a-model", SystemPrompt(""), (), max_output_tokens=1, tools=(tool,))

    assert compute_prefix("", call) != compute_prefix("", replace(call, tools=()))
