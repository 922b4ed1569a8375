"""`/metrics`: each fact is counted once, every server has the same counts, and a tenant sees its
own.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.metrics import MAX_VALUES
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.redis.script import build_source
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, ToolObserved, WorstCase
from handoff_queue.shared.types.errors import Interrupted
from handoff_queue.shared.types.events import JobEnded
from handoff_queue.shared.types.handoff import SharedRun
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_events import JobStatus
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.metrics import BUCKETS
from handoff_queue.supervisor.text.sanitizing import replace_unsafe
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    finish_with,
    granted_claim,
    issue,
    model_reply,
    result_of,
    version_of,
)
from tests.doubles.sweep_states import age_everything
from tests.supervisor.serve.conftest import LOCAL, URL, ClientOf
from tests.supervisor.serve.scrapes import counted, scrape, value
from tests.supervisor.shell import Shell
from tests.waiting import wait_until

MODEL = "some-model"
WORST = WorstCase(1_000, 500, 700, MODEL)
CALL = {"tenant": "default", "agent": "researcher", "model": MODEL}


def call_of(claimed: HandoffClaim, usage: Usage | None = None) -> None:
    """Make one model call, without a reply if `usage` is given."""
    assert claimed.reserve(WORST) is None
    if usage is None:
        claimed.checkpoint(model_reply(100, 20, 5))
    else:
        claimed.checkpoint(ModelCallFailed(error="no reply", usage=usage))


def end_job(store: Store, job_id: JobId, status: JobStatus = JobStatus.OK) -> Commit:
    """End a job, and return the commit."""
    commit = Commit(
        job_id=job_id,
        expected=version_of(store, job_id),
        events=[JobEnded(status=status)],
        fields={"status": status.value},
    )
    store.journal.commit(commit)
    return commit


def test_calls_tokens_money_and_outcomes_are_counted(store: Store, http: TestClient) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    claimed = granted_claim(store, job_id, "a.1")
    call_of(claimed)
    call_of(claimed, Usage())
    call_of(claimed, Usage(input_tokens=1_000, output_tokens=500, cost_microusd=700, cut_calls=1))
    finish(claimed)
    end_job(store, job_id)

    seen = scrape(http)

    calls = [
        value(seen, "handoff_model_calls_total", **CALL, status=status)
        for status in ("ok", "failed", "cut")
    ]
    assert calls == [1, 1, 1]
    assert value(seen, "handoff_tokens_total", **CALL, type="input") == 1_100
    assert value(seen, "handoff_tokens_total", **CALL, type="output") == 520
    assert value(seen, "handoff_cost_usd_total", **CALL) == pytest.approx(0.000_705)
    of_agent = {"tenant": "default", "agent": "researcher"}
    assert value(seen, "handoff_handoffs_total", **of_agent, outcome="ok") == 1
    assert value(seen, "handoff_jobs_submitted_total", tenant="default") == 1
    assert value(seen, "handoff_jobs_ended_total", tenant="default", outcome="ok") == 1
    assert value(seen, "handoff_turn_duration_seconds_count", agent="researcher") == 3
    assert value(seen, "handoff_model_call_duration_seconds_count", model=MODEL) == 3
    assert value(seen, "handoff_job_duration_seconds_count", outcome="ok") == 1
    assert value(seen, "handoff_job_end_delay_seconds_count") == 1


def test_the_cache_hit_share_is_the_quotient_of_two_counters(
    store: Store, http: TestClient
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST) is None
    usage = Usage(
        input_tokens=200,
        output_tokens=10,
        cache_read_tokens=150,
        cache_saved_microusd=500_000,
        batch_calls=1,
        batch_saved_microusd=250_000,
        cache_surcharge_microusd=250_000,
        cost_microusd=None,
    )
    claimed.checkpoint(model_reply().model_copy(update={"usage": usage}))

    seen = scrape(http)

    assert value(seen, "handoff_cached_input_tokens_total", **CALL) == 150
    assert value(seen, "handoff_cache_saved_usd_total", **CALL) == 0.5
    assert value(seen, "handoff_batch_calls_total", **CALL) == 1
    assert value(seen, "handoff_batch_saved_usd_total", **CALL) == 0.25
    assert value(seen, "handoff_cache_surcharge_usd_total", **CALL) == 0.25
    assert value(seen, "handoff_tokens_total", **CALL, type="input") == 200
    assert value(seen, "handoff_unpriced_model_calls_total", **CALL) == 1
    assert value(seen, "handoff_cost_usd_total", **CALL) is None


def test_copied_results_and_the_money_that_they_saved_are_counted(
    store: Store, http: TestClient
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    shared = SharedRun(job_id=job_id, handoff_id=HandoffId("b.1"), saved_microusd=500_000)
    finish_with(claimed, result_of(claimed).model_copy(update={"shared": shared, "model": MODEL}))

    seen = scrape(http)

    assert value(seen, "handoff_shared_handoffs_total", **CALL) == 1
    assert value(seen, "handoff_shared_saved_usd_total", **CALL) == 0.5
    assert value(seen, "handoff_model_calls_total", **CALL, status="ok") is None


def test_a_turn_lasts_until_the_next_call_and_includes_its_tools(
    store: Store, http: TestClient
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    call_of(claimed)
    before_tool = scrape(http)
    claimed.checkpoint(ToolObserved(tool_use_id="t1", text="found"))
    assert claimed.reserve(WORST) is None

    seen = scrape(http)

    turns = "handoff_turn_duration_seconds_count"
    assert value(before_tool, turns, agent="researcher") is None
    assert value(seen, turns, agent="researcher") == 1


class ConnectionThatRepeats(Connection):
    """A connection that sends each script twice, as a process does after a lost reply."""

    def run_script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        first = super().run_script(name, keys, args)
        again = super().run_script(name, keys, args)
        return first if name == "commit" else again


def life_of_a_job(store: Store) -> dict[tuple[str, ...], int]:
    """Run a job with two turns and a dropped handoff, and return the counts without durations."""
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    claimed = granted_claim(store, job_id, "a.1")
    call_of(claimed)
    call_of(claimed)
    finish(claimed)
    drop = Commit(
        job_id=job_id, expected=version_of(store, job_id), events=[], drop=[HandoffId("b.1")]
    )
    store.journal.commit(drop)
    end_job(store, job_id)
    counts: dict[tuple[str, ...], int] = {}
    for count in store.metrics.read_counts():
        if "_seconds" not in count.parts[0]:
            counts[count.parts] = count.value
    return counts


def test_a_message_that_is_sent_twice_is_counted_once(
    store: Store, redis_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = life_of_a_job(store)
    store.connection.redis.flushall()
    with monkeypatch.context() as patch:
        patch.setattr("handoff_queue.shared.store.store.Connection", ConnectionThatRepeats)
        repeating = open_store(redis_url, settings)

    twice = life_of_a_job(repeating)
    repeating.connection.close()

    assert once[("handoffs", "default", "researcher", "dropped")] == 1
    assert twice == once


def test_the_claim_of_a_dead_process_is_counted_once_with_its_call(
    store: Store, http: TestClient
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    dead = granted_claim(store, job_id, "a.1")
    assert dead.reserve(WORST) is None
    expire_lease(store, dead)
    store.due_work.sweep()
    store.due_work.sweep()

    with pytest.raises(Interrupted):
        dead.checkpoint(model_reply())
    seen = scrape(http)

    assert value(seen, "handoff_lease_losses_total", tenant="default", agent="researcher") == 1
    assert value(seen, "handoff_sweeper_recoveries_total", kind="lease") == 1
    assert value(seen, "handoff_model_calls_total", **CALL, status="cut") == 1
    assert value(seen, "handoff_model_calls_total", **CALL, status="ok") is None
    assert value(seen, "handoff_turn_duration_seconds_count", agent="researcher") is None


def test_dead_letters_are_counted_also_after_an_operator_has_dropped_them(
    store: Store, http: TestClient
) -> None:
    store.dead_letters.add("writer", "no JSON", "{")
    store.dead_letters.add("writer", "no JSON", "[")
    store.dead_letters.drop_all()

    seen = scrape(http)

    assert value(seen, "handoff_dead_letters_total", agent="writer") == 2
    assert value(seen, "handoff_dead_letters_kept") == 0


def test_backlogs_are_shown_by_agent_and_by_tenant(store: Store, http: TestClient) -> None:
    for tenant in ("acme", "acme", "zeta"):
        issue(store, a_job(store, tenant), "a.1")
    held = a_job(store, "acme")
    issue(store, held, "a.1")
    granted_claim(store, held, "a.1")

    seen = scrape(http)

    assert value(seen, "handoff_queue_depth", agent="researcher") == 3
    depths = [
        value(seen, "handoff_tenant_queue_depth", tenant=tenant, agent="researcher")
        for tenant in ("acme", "zeta")
    ]
    assert depths == [2, 1]
    assert value(seen, "handoff_busy_slots", agent="researcher") == 1
    assert value(seen, "handoff_wanted_slots", agent="researcher") == 4
    for tenant in ("acme", "zeta"):
        wait = value(
            seen, "handoff_tenant_queue_oldest_wait_seconds", tenant=tenant, agent="researcher"
        )
        assert wait is not None
        assert wait >= 0


def test_a_waiting_handoff_of_a_deleted_job_leaves_the_backlog_of_its_tenant(
    store: Store, http: TestClient
) -> None:
    job_id = a_job(store, "acme")
    issue(store, job_id, "a.1")
    store.jobs.delete(job_id)
    age_everything(store, 7_200)
    store.due_work.sweep()

    seen = scrape(http)

    assert value(seen, "handoff_queue_depth", agent="researcher") == 0
    tenant = {"tenant": "acme", "agent": "researcher"}
    assert value(seen, "handoff_tenant_queue_depth", **tenant) is None


def test_paused_handoffs_of_a_paused_agent_are_not_backlog(
    store: Store, http: TestClient, jobs: Client
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    jobs.pause("researcher", "a test")
    assert claim(store, job_id, "a.1").verdict is ClaimVerdict.PAUSED

    seen = scrape(http)

    assert value(seen, "handoff_paused_handoffs", agent="researcher") == 1
    assert value(seen, "handoff_agent_paused", agent="researcher") == 1
    assert value(seen, "handoff_queue_depth", agent="researcher") == 0
    assert value(seen, "handoff_wanted_slots", agent="researcher") == 0


def test_tenants_beyond_the_limit_share_one_time_series(store: Store, http: TestClient) -> None:
    most = MAX_VALUES["tenant"]
    for number in range(most + 2):
        issue(store, a_job(store, f"tenant-{number}"), "a.1")

    seen = scrape(http)

    assert value(seen, "handoff_jobs_submitted_total", tenant="other") == 2
    assert value(seen, "handoff_jobs_submitted_total", tenant=f"tenant-{most - 1}") == 1
    of_others = {"tenant": "other", "agent": "researcher"}
    assert value(seen, "handoff_tenant_queue_depth", **of_others) == 2
    submitted = [series for series in seen if series[0] == "handoff_jobs_submitted_total"]
    assert len(submitted) == most + 1


def test_a_tenant_sees_only_its_own_time_series(store: Store, client_with: ClientOf) -> None:
    for tenant in ("acme", "zeta"):
        issue(store, a_job(store, tenant), "a.1")
    for number in range(MAX_VALUES["tenant"]):
        a_job(store, f"tenant-{number}")

    of_acme = scrape(client_with("read", "acme"))
    of_all = scrape(client_with("read"))
    of_other = scrape(client_with("read", "other"))

    tenants = {dict(labels).get("tenant") for _, labels in of_acme}
    assert tenants == {"acme"}
    assert value(of_acme, "handoff_tenant_queue_depth", tenant="acme", agent="researcher") == 1
    assert value(of_all, "handoff_jobs_submitted_total", tenant="zeta") == 1
    assert value(of_all, "handoff_jobs_submitted_total", tenant="other") == 2
    assert of_other == {}


def test_a_scrape_needs_a_token_once_there_is_one(http: TestClient, client_with: ClientOf) -> None:
    assert http.get("/metrics").status_code == 200

    client_with("read")

    assert http.get("/metrics").status_code == 401


def test_every_server_has_the_same_counts_also_after_a_restart(
    store: Store, jobs: Client, http: TestClient, settings: Settings
) -> None:
    life_of_a_job(store)
    first = counted(scrape(http))
    other = make_application(AsyncClient(jobs), settings)

    second = counted(scrape(TestClient(other, base_url=URL, client=LOCAL)))

    assert first == second
    assert first


def test_a_scrape_reads_no_jobs(store: Store, http: TestClient) -> None:
    def commands_of_a_scrape() -> int:
        before = store.connection.redis.info("commandstats")
        scrape(http)
        after = store.connection.redis.info("commandstats")
        calls = 0
        for name, figures in after.items():
            calls += figures["calls"] - before.get(name, {"calls": 0})["calls"]
        return calls

    a_job(store)
    scrape(http)  # Redis loads the scripts once
    with_one = commands_of_a_scrape()
    for _ in range(200):
        a_job(store)

    # The open jobs of a tenant are checked in small parts. A new connection, or a reading of
    # Redis's clock, is a command or two.
    assert commands_of_a_scrape() < with_one + 30


def test_prometheus_gets_openmetrics_if_it_asks_for_it(store: Store, http: TestClient) -> None:
    life_of_a_job(store)

    answer = http.get("/metrics", headers={"Accept": "application/openmetrics-text"})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {
        family.name
        for family in text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    }
    assert {"handoff_handoffs", "handoff_turn_duration_seconds"} <= families


def test_the_store_counts_durations_in_the_buckets_of_the_metrics(store: Store) -> None:
    source = build_source("finish")
    (bounds,) = re.findall(r"BOUNDS_S = \{ (.+?) \}", source)

    assert (*bounds.split(", "), "+Inf") == BUCKETS


def test_the_store_limits_the_values_of_labels_as_the_documentation_says() -> None:
    (limits,) = re.findall(r"MAX_VALUES = \{ (.+?) \}", build_source("finish"))

    assert dict(re.findall(r"(\w+) = (\d+)", limits)) == {
        kind: str(most) for kind, most in MAX_VALUES.items()
    }


@pytest.mark.parametrize(
    ("garbage", "counted"),
    [(b"", 1), (b"-1", 0), (b"nan", 1), (b"9" * 19, 1), (b"9" * 30, 1), (b"9" * 400, 1)],
)
def test_a_count_that_is_not_a_number_begins_again_and_does_not_stop_a_job(
    store: Store, http: TestClient, garbage: bytes, counted: int
) -> None:
    field = "\t".join(("handoffs", "default", "researcher", "ok"))
    store.connection.redis.hset(keys.METRICS, mapping={field: garbage, b"\xff\t": garbage})

    life_of_a_job(store)

    ended = {"tenant": "default", "agent": "researcher", "outcome": "ok"}
    assert value(scrape(http), "handoff_handoffs_total", **ended) == counted
    assert store.connection.redis.hget(keys.METRICS, field) == b"%d" % counted


@pytest.mark.parametrize("unsafe", ["\x1b]0;evil\x07", "a\rb", "a\nb", "\u202eb", "\x9b2J"])
def test_a_time_series_with_a_control_character_in_a_label_is_left_out(
    store: Store, http: TestClient, unsafe: str
) -> None:
    """A worker can write any label. A terminal that shows the page would obey the character."""
    life_of_a_job(store)
    forged = {
        f"handoffs\t{unsafe}\tresearcher\tok": 3,
        f"turn_duration_seconds\t1\t{unsafe}": 3,
    }
    store.connection.redis.hset(keys.METRICS, mapping=forged)

    response = http.get("/metrics")

    assert replace_unsafe(response.text) == response.text
    ended = {"tenant": "default", "agent": "researcher", "outcome": "ok"}
    assert value(scrape(http), "handoff_handoffs_total", **ended) == 1
    assert unsafe not in response.text


def test_a_job_goes_on_although_the_counts_are_of_another_type(
    store: Store, http: TestClient
) -> None:
    for name in (keys.METRICS, *(f"{keys.METRICS}:{kind}" for kind in MAX_VALUES)):
        store.connection.redis.set(name, "garbage")

    life_of_a_job(store)

    assert value(scrape(http), "handoff_supervisors") == 0


WAITING_JOBS = "handoff_jobs_without_worker"


def jobs_without_worker(http: TestClient) -> dict[str, float]:
    """Return the waiting jobs of a scrape by the specialists that they may use."""
    counts: dict[str, float] = {}
    for (name, labels), number in scrape(http).items():
        if name == WAITING_JOBS:
            counts[dict(labels)["specialists"]] = number
    return counts


@pytest.mark.slow
def test_jobs_whose_specialists_have_no_worker_are_counted(shell: Shell, http: TestClient) -> None:
    shell.leave()
    for specialists in (("tailor",), ("tailor",), ("writer", "baker"), ()):
        shell.advance(shell.jobs.submit(Request("Sew it.", specialists=specialists)))

    assert jobs_without_worker(http) == {"tailor": 2, "baker writer": 1, "any": 1}

    shell.serve("writer")
    # No supervisor has checked the jobs since the worker came.
    wait_until(
        lambda: jobs_without_worker(http) == {"tailor": 2}, expected="only jobs of the tailor"
    )


def test_a_job_with_a_worker_is_not_counted(shell: Shell, http: TestClient) -> None:
    shell.advance(shell.jobs.submit(Request("Sew it.", specialists=("writer", "baker"))))
    shell.advance(shell.jobs.submit(Request("Sew it.")))

    assert jobs_without_worker(http) == {}


def test_a_job_that_no_supervisor_checks_any_more_is_not_counted(
    shell: Shell, http: TestClient
) -> None:
    gone = shell.jobs.submit(Request("Sew it.", specialists=("tailor",)))
    shell.store.presence.announce_unplanned_job(
        gone, ("tailor",), shell.store.connection.now() - 31
    )

    assert jobs_without_worker(http) == {}


def test_a_scrape_sends_as_many_commands_for_many_waiting_jobs_as_for_one(
    shell: Shell, http: TestClient
) -> None:
    redis, now = shell.store.connection.redis, shell.store.connection.now()

    def commands_of_a_scrape() -> int:
        scrape(http)
        redis.config_resetstat()
        scrape(http)
        stats = redis.info("commandstats")
        return sum(stat["calls"] for name, stat in stats.items() if "cmdstat_info" not in name)

    shell.advance(shell.jobs.submit(Request("Sew it.", specialists=("tailor",))))
    for_one = commands_of_a_scrape()
    for n in range(200):
        shell.store.presence.announce_unplanned_job(JobId(f"j-{n:012x}"), ("tailor",), now)

    assert commands_of_a_scrape() == for_one
    assert jobs_without_worker(http) == {"tailor": 201}


def test_a_job_waits_though_its_announcement_cannot_be_stored(
    shell: Shell, http: TestClient
) -> None:
    shell.store.connection.redis.set(f"{keys.UNPLANNED}:tailor", "garbage", ex=60)
    job_id = shell.jobs.submit(Request("Sew it.", specialists=("tailor",)))

    shell.advance(job_id)

    assert shell.kinds(job_id) == ["job_submitted"]
    assert shell.jobs.info(job_id).status is JobStatus.QUEUED
    shell.store.connection.redis.delete(f"{keys.UNPLANNED}:tailor")
