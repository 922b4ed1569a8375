"""Equal handoffs of a tenant wait for one run, copy its result, and pay nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.broker.attempt_outcome import AttemptEnd, AttemptOutcome
from handoff_queue.shared.runtime.attempt import Attempts, PreparedAttempt
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.runner_factory import AgentSetup
from handoff_queue.shared.runtime.shared_run import check_sharing
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, EndedRun, HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.encryption_at_rest import SEALED
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.payloads import pack
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.errors import InvalidSpecialist, ModelRejected
from handoff_queue.shared.types.events import HandoffFinished, UserMessageSent
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    Artifact,
    Document,
    HandoffResult,
    Manifest,
    ResultStatus,
    make_ref,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, create_word
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.usage import NOTHING_USED
from handoff_queue.testing import tool_call_reply
from tests.doubles.agent_runs import answer_reply
from tests.doubles.handoffs import a_handoff, a_result, a_spec, a_tool
from tests.doubles.jobs import a_job, accounts, expire_lease, handoff_key, issue_handoff, version_of
from tests.doubles.scripted_model import ScriptedModel, replies_in_order
from tests.doubles.tenant_keys import new_key, write_keys

SETTINGS = Settings(lease_s=3_600, offline=True)
TEXT = "Qdrant is a vector\n  database. It is written in Rust."
SHARING = a_spec().model_copy(update={"share": True})


@dataclass(slots=True)
class Bench:
    """A worker with a model that counts its calls, and jobs with equal handoffs."""

    store: Store
    attempts: Attempts
    model: ScriptedModel
    tools: tuple[Tool, ...] = ()

    def handoff(
        self,
        tenant: str = "default",
        spec: SpecialistSpec = SHARING,
        text: str = TEXT,
        step: str = "find",
        **changes: Any,
    ) -> AgentHandoff:
        """Return the stored handoff of a new job."""
        document = Document(
            path="qdrant.md",
            digest=compute_digest(text),
            media_type="text/markdown",
            chars=len(text),
        )
        manifest = Manifest(documents=(document,)).to_json()
        self.store.payloads.put_documents({document.digest: text}, 60, tenant)
        job_id = a_job(self.store, tenant)
        handoff = a_handoff(
            job_id=job_id,
            step_id=StepId(step),
            handoff_id=HandoffId(f"{step}.1"),
            specialist=spec.content_digest,
            artifacts=(Artifact(kind="documents", name="d", manifest=make_ref(manifest), count=1),),
            **changes,
        )
        issue_handoff(self.store, handoff, spec.to_json(), manifest)
        return handoff

    def begin(self, handoff: AgentHandoff) -> tuple[PreparedAttempt, HandoffClaim]:
        """Claim a handoff as a worker does."""
        ready = self.attempts.prepare(handoff.to_json(), handoff, self.set_up)
        return ready, self.attempts.store.claims.claim(ready.claiming)

    def end(self, begun: tuple[PreparedAttempt, HandoffClaim]) -> HandoffResult:
        """Run a claimed handoff to its end."""
        ended = self.attempts.run(*begun)
        assert ended.result is not None
        return ended.result

    def attempt(self, handoff: AgentHandoff) -> AttemptOutcome:
        return self.attempts.attempt(handoff.to_json(), handoff, self.set_up)

    def set_up(
        self,
        handoff: AgentHandoff,
        _spec: SpecialistSpec,
        loaded: LoadedPayloads,
        documents: JobDocuments,
    ) -> AgentSetup:
        known = loaded.collect_claims()
        output = handoff.expected_output_format
        reading = EnvelopeFormat(handoff.step_id, output, documents.sources, known)
        return AgentSetup(reading, self.tools)

    def woken(self) -> set[JobId]:
        """Return the jobs whose handoffs the next sweep finds."""
        return set(self.store.due_work.sweep().due)

    def wait_twice(self, first: AgentHandoff) -> tuple[AgentHandoff, AgentHandoff]:
        """Return two handoffs that wait for `first`, in the order in which they take over."""
        waiting = self.handoff(), self.handoff()
        for handoff in waiting:
            assert self.attempt(handoff).end is AttemptEnd.DEFERRED
        (name,) = self.store.connection.redis.keys("handoff:shared_run:*")
        order = self.store.connection.redis.zrange(name, 0, -1)
        assert order[0].decode() == f"{first.job_id}/{first.handoff_id}"
        jobs = [member.decode().partition("/")[0] for member in order]
        early, late = sorted(waiting, key=lambda handoff: jobs.index(handoff.job_id))
        return early, late

    def end_wait(self, handoff: AgentHandoff) -> None:
        """Let a waiting handoff look for its run again, as after half a minute."""
        key = handoff_key(self.store, handoff.job_id, handoff.handoff_id)
        self.store.connection.redis.hdel(key, "deferred")

    def drop(self, handoff: AgentHandoff) -> None:
        self.store.journal.commit(
            Commit(
                job_id=handoff.job_id,
                expected=version_of(self.store, handoff.job_id),
                events=[],
                drop=[handoff.handoff_id],
            )
        )


@contextmanager
def bench_of(store: Store, worker: Store, redis_url: str) -> Iterator[Bench]:
    """Yield a worker that uses the store `worker`."""
    model = ScriptedModel(replies_in_order(answer_reply()))
    leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)
    models = Models(SETTINGS, lambda _: model)
    attempts = Attempts(worker, SETTINGS, "w1", leases, PayloadCache(worker), models)
    yield Bench(store, attempts, model)
    leases.stop()


@pytest.fixture
def bench(store: Store, redis_url: str) -> Iterator[Bench]:
    with bench_of(store, store, redis_url) as bench:
        yield bench


@pytest.fixture
def signing_bench(store: Store, redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    """Yield a worker with its key."""
    make_keys(tmp_path, ("researcher", "analyst"))
    key = find_private_key_file(tmp_path, "worker-researcher")
    worker = open_store(redis_url, Settings(offline=True, keys=tmp_path, signing_key=key))
    with bench_of(store, worker, redis_url) as bench:
        yield bench
    worker.connection.close()


def say(store: Store, handoff: AgentHandoff) -> None:
    """Send a message of a user to the agents of the job."""
    text = "Look at the licence, too."
    event = UserMessageSent(message_id=create_word(), text=make_ref(text))
    store.user_messages.send(handoff.job_id, event, text)


def forge_run(bench: Bench, run: AgentHandoff, follower: AgentHandoff) -> None:
    """Give a run of another tenant the name of the run of `follower`, which waits for it."""
    ready = bench.attempts.prepare(follower.to_json(), follower, bench.set_up)
    name, member = ready.claiming.run_name, f"{run.job_id}/{run.handoff_id}"
    redis = bench.store.connection.redis
    redis.zadd(keys.shared_run("researcher", name), {member: 0})
    redis.hset(handoff_key(bench.store, run.job_id, run.handoff_id), "shares", name)
    redis.hset(handoff_key(bench.store, follower.job_id, follower.handoff_id), "follows", member)


def finished_in(store: Store, job_id: JobId) -> HandoffFinished:
    events = [recorded.event for recorded in store.journal.read(job_id)]
    (finished,) = (event for event in events if isinstance(event, HandoffFinished))
    return finished


def test_an_equal_handoff_of_another_job_waits_and_copies_the_result(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff(step="look")
    running = bench.begin(first)
    waiting = bench.attempt(second)
    assert (waiting.end, waiting.why) == (AttemptEnd.DEFERRED, "following")
    assert bench.woken() == set()
    paid = bench.end(running)

    assert bench.woken() == {second.job_id}
    copied = bench.attempt(second).result

    assert len(bench.model.calls) == 1
    assert copied is not None
    assert (copied.job_id, copied.handoff_id, copied.status) == (second.job_id, "look.1", "ok")
    assert (copied.output, copied.claims[0].id) == (
        "It is written in Rust [look.c1].",
        "look.c1",
    )
    assert copied.claims[0].sources == paid.claims[0].sources
    assert copied.origins == paid.origins
    assert (copied.usage, copied.turns) == (NOTHING_USED, 0)
    assert copied.shared is not None
    assert (copied.shared.job_id, copied.shared.handoff_id) == (first.job_id, "find.1")
    assert copied.shared.saved_microusd == paid.usage.cost_microusd
    assert finished_in(bench.store, second.job_id).shared == copied.shared
    assert not any(accounts(bench.store, second.job_id).values())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tenant": "acme"}, id="of another tenant"),
        pytest.param({"text": f"{TEXT} "}, id="with another document"),
        pytest.param({"task_description": "Find its licence."}, id="with another task"),
        pytest.param({"model": "some-other-model"}, id="with another model"),
        pytest.param(
            {"spec": SHARING.model_copy(update={"max_output_tokens": 99})}, id="of another file"
        ),
        pytest.param({"limits": HandoffLimits(max_turns=1)}, id="with other turns"),
        pytest.param({"expected_output_format": {"type": "object"}}, id="with another form"),
        pytest.param({"origins": ("web",)}, id="with other origins"),
        pytest.param({"fallback_instruction": "Guess."}, id="with another fallback"),
        pytest.param({"batch_until": 9e9}, id="with calls in batches"),
    ],
)
def test_a_handoff_that_differs_runs_at_once(bench: Bench, changes: dict[str, Any]) -> None:
    bench.begin(bench.handoff())

    assert bench.begin(bench.handoff(**changes))[1].verdict is ClaimVerdict.GRANTED


def test_a_job_that_shares_no_runs_runs_at_once_and_is_not_copied(bench: Bench) -> None:
    alone, first = bench.handoff(), bench.handoff()
    bench.store.connection.redis.hset(keys.job(alone.job_id), "alone", 1)
    running = bench.begin(alone)

    assert bench.begin(first)[1].verdict is ClaimVerdict.GRANTED
    assert bench.end(running).shared is None


def test_a_handoff_with_a_message_of_a_user_runs_itself(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    bench.begin(first)
    say(bench.store, second)

    assert bench.begin(second)[1].verdict is ClaimVerdict.GRANTED


def test_a_run_that_took_a_message_of_a_user_is_not_copied(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    running = bench.begin(first)
    bench.attempt(second)
    say(bench.store, first)
    bench.end(running)

    result = bench.attempt(second).result

    assert result is not None
    assert result.shared is None


def test_a_run_about_whose_call_a_person_was_asked_is_not_copied(bench: Bench) -> None:
    first, second = bench.handoff(call_approval_s=60), bench.handoff(call_approval_s=60)
    running = bench.begin(first)
    bench.attempt(second)
    key = handoff_key(bench.store, first.job_id, first.handoff_id)
    bench.store.connection.redis.hset(key, "asks", '{"toolu_1": "3"}')
    bench.end(running)

    result = bench.attempt(second).result

    assert result is not None
    assert result.shared is None


def test_handoffs_share_no_run_if_only_one_may_ask_a_person(bench: Bench) -> None:
    bench.begin(bench.handoff())

    assert bench.begin(bench.handoff(call_approval_s=60))[1].verdict is ClaimVerdict.GRANTED


def test_handoffs_of_a_specialist_that_does_not_share_run_at_once(bench: Bench) -> None:
    bench.begin(bench.handoff(spec=a_spec()))

    assert bench.begin(bench.handoff(spec=a_spec()))[1].verdict is ClaimVerdict.GRANTED


@pytest.mark.parametrize("change", [{"acts": True}, {"repeatable": False}, {"writes": True}])
def test_a_run_with_a_tool_that_changes_something_is_not_shared(
    bench: Bench, change: dict[str, Any]
) -> None:
    bench.tools = (replace(a_tool("orders", str), **change),)
    spec = SHARING.model_copy(update={"tools": (bench.tools[0].name,)})
    bench.begin(bench.handoff(spec=spec))

    assert bench.begin(bench.handoff(spec=spec))[1].verdict is ClaimVerdict.GRANTED


def test_a_worker_refuses_a_specialist_that_shares_runs_with_effects() -> None:
    tool = a_tool("send_mail", str, repeatable=False)
    with pytest.raises(InvalidSpecialist, match="share: its tool send_mail acts"):
        check_sharing(SHARING, [tool])

    check_sharing(a_spec(), [tool])
    check_sharing(SHARING, [a_tool("look", str)])


def test_a_later_equal_handoff_runs_itself(bench: Bench) -> None:
    bench.attempt(bench.handoff())
    bench.attempt(bench.handoff())

    assert len(bench.model.calls) == 2


def test_after_a_failed_run_one_waiting_handoff_takes_over(bench: Bench) -> None:
    first = bench.handoff()
    running = bench.begin(first)
    second, third = bench.wait_twice(first)
    script, bench.model._script = bench.model._script, lambda _: ModelRejected("no", status=400)
    assert bench.end(running).status is ResultStatus.FAILED

    assert bench.woken() == {second.job_id}
    bench.model._script = script
    calls = len(bench.model.calls)
    second_run = bench.begin(second)
    assert bench.attempt(third).end is AttemptEnd.ELSEWHERE
    assert bench.end(second_run).shared is None
    copied = bench.attempt(third).result

    assert copied is not None
    assert copied.shared is not None
    assert copied.shared.job_id == second.job_id
    assert len(bench.model.calls) == calls + 1


def test_after_a_dropped_run_one_waiting_handoff_takes_over(bench: Bench) -> None:
    first = bench.handoff()
    bench.begin(first)
    second, third = bench.wait_twice(first)
    bench.drop(first)

    assert bench.woken() == {second.job_id}
    assert bench.begin(second)[1].verdict is ClaimVerdict.GRANTED
    assert bench.begin(third)[1].verdict is ClaimVerdict.DEFERRED


def test_the_next_handoff_takes_over_if_the_woken_one_is_dropped(bench: Bench) -> None:
    first = bench.handoff()
    bench.begin(first)
    second, third = bench.wait_twice(first)
    bench.drop(first)
    bench.drop(second)

    assert third.job_id in bench.woken()
    assert bench.begin(third)[1].verdict is ClaimVerdict.GRANTED


def test_a_lost_run_continues_under_a_new_claim_while_the_others_wait(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    lost = bench.begin(first)[1]
    bench.attempt(second)
    expire_lease(bench.store, lost)
    bench.store.due_work.sweep()

    bench.end_wait(second)
    assert bench.attempt(second).end is AttemptEnd.DEFERRED
    again = bench.begin(first)
    assert again[1].verdict is ClaimVerdict.GRANTED
    bench.end(again)
    assert bench.attempt(second).result is not None
    assert len(bench.model.calls) == 1


def test_a_lost_copy_is_made_again(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    running = bench.begin(first)
    bench.attempt(second)
    bench.end(running)
    lost = bench.begin(second)[1]
    assert lost.copied_run is not None
    assert not lost.reserved, "a copy makes no call"
    expire_lease(bench.store, lost)

    copied = bench.attempt(second).result

    assert copied is not None
    assert copied.shared is not None
    assert len(bench.model.calls) == 1


def test_the_deletion_of_the_running_job_lets_a_waiting_handoff_run(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    bench.begin(first)
    bench.attempt(second)
    for name in bench.store.connection.redis.scan_iter(f"*{first.job_id}*"):
        bench.store.connection.redis.delete(name)
    bench.end_wait(second)

    assert bench.begin(second)[1].verdict is ClaimVerdict.GRANTED


def test_a_handoff_waits_for_half_of_its_time_at_most(bench: Bench) -> None:
    deadline = bench.store.connection.now() + 100
    limits = HandoffLimits(deadline=deadline)
    first, second = bench.handoff(limits=limits), bench.handoff(limits=limits)
    bench.begin(first)
    bench.attempt(second)
    key = handoff_key(bench.store, second.job_id, second.handoff_id)
    bench.end_wait(second)
    bench.store.connection.redis.hset(key, "follows_since", int((deadline - 300) * 1000))

    _, claim = bench.begin(second)

    assert (claim.verdict, claim.copied_run) == (ClaimVerdict.GRANTED, None)


def test_a_copy_keeps_the_cited_results_of_tools_for_its_job(bench: Bench) -> None:
    name, text = "tool:find.1/orders#1", "order B is shipped"
    claim = {"id": "c1", "text": "Shipped.", "sources": [{"source": name, "quote": text}]}
    bench.model._script = replies_in_order(
        tool_call_reply(("orders", {"q": "order B"})),
        answer_reply("Shipped [c1].", claims=[claim]),
    )
    bench.tools = (replace(a_tool("orders", lambda _: text), is_source=True),)
    spec = SHARING.model_copy(update={"tools": ("orders",)})
    first, second = bench.handoff(spec=spec), bench.handoff(spec=spec, step="look")
    running = bench.begin(first)
    bench.attempt(second)
    bench.end(running)
    copied = bench.attempt(second).result

    assert copied is not None
    (citation,) = copied.claims[0].sources
    (page,) = bench.store.payloads.load_fetched_pages(second.job_id)
    # A step of the own job may have the name of the other job's step.
    assert page.path == citation.source == "tool:look.1/orders#1"
    assert page.digest == citation.digest
    assert page.own_passages == ("order b",)


def test_the_name_of_a_run_depends_on_the_tenant(bench: Bench) -> None:
    names = {bench.begin(bench.handoff(tenant))[1].run_name for tenant in ("default", "acme")}

    assert len(names) == 2


def test_no_handoff_waits_for_a_run_of_another_tenant(bench: Bench) -> None:
    """A program that may write the handoffs of the role gives both runs the same name."""
    foreign, own = bench.handoff("acme"), bench.handoff()
    bench.begin(foreign)
    forge_run(bench, foreign, own)

    assert bench.begin(own)[1].verdict is ClaimVerdict.GRANTED


def test_no_result_of_another_tenant_is_offered(bench: Bench) -> None:
    foreign, own = bench.handoff("acme"), bench.handoff()
    bench.attempt(foreign)
    forge_run(bench, foreign, own)

    assert bench.begin(own)[1].copied_run is None


def test_a_worker_copies_no_result_of_another_tenant(bench: Bench) -> None:
    foreign, own = bench.handoff("acme"), bench.handoff()
    ended = bench.attempt(foreign).result
    assert ended is not None
    digest = make_ref(ended.to_json()).digest
    shared = bench.begin(own)[0].shared
    assert shared is not None

    assert shared.copy_result(EndedRun(foreign.job_id, foreign.handoff_id, digest, "")) is None


def test_a_signed_run_is_copied(signing_bench: Bench) -> None:
    bench = signing_bench
    first, second = bench.handoff(), bench.handoff()
    running = bench.begin(first)
    bench.attempt(second)
    bench.end(running)

    copied = bench.attempt(second).result

    assert copied is not None
    assert copied.shared is not None


@pytest.mark.parametrize("field", ["proof", "result"])
def test_a_run_with_a_forged_field_is_not_copied(signing_bench: Bench, field: str) -> None:
    bench = signing_bench
    first, second = bench.handoff(), bench.handoff()
    running = bench.begin(first)
    bench.attempt(second)
    bench.end(running)
    forged = a_result("find", "Forged.").model_copy(update={"job_id": first.job_id}).to_json()
    redis = bench.store.connection.redis
    redis.hset(keys.blobs(first.job_id), compute_digest(forged), pack(forged))
    redis.hset(
        handoff_key(bench.store, first.job_id, first.handoff_id), field, compute_digest(forged)
    )

    result = bench.attempt(second).result

    assert result is not None
    assert (result.shared, result.output) == (None, "It is written in Rust [find.c1].")
    assert len(bench.model.calls) == 2


def test_an_encrypted_tenant_shares_runs_under_a_name_that_needs_its_key(
    redis_url: str, tmp_path: Path
) -> None:
    write_keys(tmp_path, "acme", new_key())
    sealed = open_store(redis_url, Settings(offline=True, tenant_keys=tmp_path))
    with bench_of(sealed, sealed, redis_url) as bench:
        first, second = bench.handoff("acme"), bench.handoff("acme")
        ready, claim = bench.begin(first)
        bench.attempt(second)
        bench.end((ready, claim))
        copied = bench.attempt(second).result
    redis = sealed.connection.redis
    stored = [value for job in (first, second) for value in redis.hvals(keys.blobs(job.job_id))]
    sealed.connection.close()

    assert copied is not None
    assert copied.shared is not None
    assert claim.run_name.startswith("s")
    assert {value[:1] for value in stored} == {SEALED}


@pytest.mark.parametrize("garbage", ["", "x", "j-0123456789ab/", "/a.1", "j-0123456789ab/a.1"])
def test_a_member_that_is_not_a_handoff_stops_no_run(bench: Bench, garbage: str) -> None:
    first = bench.handoff()
    running = bench.begin(first)
    (name,) = bench.store.connection.redis.keys("handoff:shared_run:*")
    bench.store.connection.redis.zadd(name, {garbage: -1})

    second = bench.begin(bench.handoff())
    bench.end(running)

    assert second[1].verdict in (ClaimVerdict.GRANTED, ClaimVerdict.FOLLOWING)


def test_the_figures_of_a_specialist_do_not_count_copies(bench: Bench) -> None:
    first, second = bench.handoff(), bench.handoff()
    running = bench.begin(first)
    bench.attempt(second)
    bench.end(running)
    bench.attempt(second)

    assert bench.store.connection.redis.llen(keys.history("researcher")) == 1
