"""The budget accounts balance at every level after any sequence of calls, and no limit is
exceeded.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    issue,
    issue_to_a_child,
    model_reply,
    reservation_answer,
    version_of,
)
from tests.property_settings import draws

TENANTS = ("ours", "ours", "theirs", "ours", "ours")
"""Tenant of each job."""
PARENTS = {3: 0, 4: 3}
"""The fourth job is a child of the first, and has its own child."""
TEAM = HandoffId("team.1")
HANDOFFS = ("a.1", "b.1", "c.1")
NAMES = [(job, handoff) for job in range(len(TENANTS)) for handoff in HANDOFFS]
HANDOFF_LIMITS = {"max_usd": 200}
JOB_LIMITS = {"max_turns": 12, "max_tokens": 3_000, "max_usd": 300}
TENANT_LIMITS = {"max_tokens": 4_000, "max_usd": 450}
DAY_LIMITS = {"max_tokens": 6_000, "max_usd": 600}
SUMS = (*(amount.total for amount in AMOUNTS), *(measure.reserved for measure in MEASURES))
CALLS = st.builds(WorstCase, st.integers(0, 900), st.integers(0, 300), st.integers(0, 120))
Name = tuple[int, str]


class BudgetMachine(RuleBasedStateMachine):
    """Random reservations, settlements, deaths, releases, drops and ends of handoffs.

    The handoffs belong to several jobs and tenants.
    """

    store: Store

    @initialize()
    def begin(self) -> None:
        self.number = int(self.store.connection.now()) // 86_400
        self.day = keys.day(self.number)
        self.store.connection.redis.delete(
            self.day, *(keys.day(self.number, tenant) for tenant in TENANTS)
        )
        caps = DailyCaps(
            DAY_LIMITS["max_tokens"],
            DAY_LIMITS["max_usd"],
            TENANT_LIMITS["max_tokens"],
            TENANT_LIMITS["max_usd"],
        )
        self.store.daily_budgets.set_caps(caps)
        self.jobs: list[JobId] = []
        for number, tenant in enumerate(TENANTS):
            above = (self.jobs[PARENTS[number]], TEAM) if number in PARENTS else None
            if above:
                issue_to_a_child(self.store, *above)
            self.jobs.append(a_job(self.store, tenant, above, **JOB_LIMITS))
            issue(self.store, self.jobs[-1], *HANDOFFS, max_microusd=HANDOFF_LIMITS["max_usd"])
        self.running: dict[Name, HandoffClaim] = {}
        self.in_flight: dict[Name, WorstCase] = {}
        self.unsettled: set[Name] = set()
        """Handoffs whose worker died during a call. The amount stays reserved until the
        handoff is checked.
        """
        self.compared: dict[int, tuple[int, ...]] = {}
        """Amounts of each child job when the step of its parent was last compared with it."""

    @rule(name=st.sampled_from(NAMES), first=st.none() | CALLS)
    def claim_one(self, name: Name, first: WorstCase | None) -> None:
        claimed = claim(self.store, self.jobs[name[0]], name[1], first=first)
        if claimed.verdict.value in ("granted", "exhausted"):
            assert name not in self.running
            self.running[name] = claimed
            self.unsettled.discard(name)
            if claimed.reserved and first:
                self.in_flight[name] = first

    @precondition(lambda self: self.running)
    @rule(data=st.data(), worst=CALLS)
    def call(self, data: st.DataObject, worst: WorstCase) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        if name in self.in_flight:
            return
        never = self.never(name, worst)
        verdict = reservation_answer(self.running[name], worst)
        if verdict[0] == b"ok":
            self.in_flight[name] = worst
            assert never == []
        elif verdict[0] == b"wait":
            assert self.in_flight or self.unsettled, "nobody is there to wait for"
            assert never == []
        else:
            assert (verdict[0], [verdict[1].decode(), verdict[2].decode()]) in [
                (b"limit", each) for each in never
            ]
            has_begun = _spent(
                self.read()[keys.handoff(self.jobs[name[0]], "researcher", HandoffId(name[1]))]
            )["max_turns"]
            if verdict[1] in (b"tenant", b"installation") and not has_begun:
                assert self.store.daily_budgets.find_refusal(TENANTS[name[0]]), (
                    "a job that could not begin would be taken"
                )

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight)))
        worst = self.in_flight.pop(name)
        tokens_in, tokens_out, microusd = (
            data.draw(st.integers(0, most))
            for most in (worst.input_tokens, worst.output_tokens, worst.microusd or 0)
        )
        self.running[name].reserved = False
        stop_reason = data.draw(st.sampled_from(["end_turn", "tool_use"]))
        self.running[name].checkpoint(model_reply(tokens_in, tokens_out, microusd, stop_reason))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ending=st.sampled_from(["die", "release", "finish", "drop"]))
    def end(self, data: st.DataObject, ending: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        claimed = self.running.pop(name)
        was_in_flight = self.in_flight.pop(name, None) is not None
        if ending == "die":
            if was_in_flight:
                self.unsettled.add(name)
            expire_lease(self.store, claimed)
            return
        if ending == "release":
            claimed.release()
        elif ending == "finish":
            assert finish(claimed) is not None
        else:
            self.drop(claimed.job_id, claimed.handoff_id)

    @rule()
    def sweep(self) -> None:
        """Settle the calls of dead processes at their worst case."""
        self.store.due_work.sweep()
        self.unsettled.clear()

    @invariant()
    def nothing_is_overspent_and_each_level_is_the_sum_of_those_below_it(self) -> None:
        if not hasattr(self, "jobs"):
            return
        now = self.read()
        for key, limits in {
            key: limits for name in NAMES for key, limits in self.levels(*name)
        }.items():
            assert all(value >= 0 for value in now[key].values())
            spent, aside = (
                _spent(now[key]),
                {measure.stored_limit: now[key].get(measure.reserved, 0) for measure in MEASURES},
            )
            assert all(spent[limit] + aside[limit] <= most for limit, most in limits.items()), (
                key,
                now[key],
            )
            assert now[key].get("cut_calls", 0) <= spent["max_turns"]
            assert now[key].get("cut_tokens", 0) <= spent["max_tokens"]
            assert now[key].get("cut_usd", 0) <= spent["max_usd"]
        for name in SUMS:
            of_day = now[self.day].get(name, 0)
            assert of_day == sum(
                now[keys.progress(job_id)].get(name, 0)
                for number, job_id in enumerate(self.jobs)
                if number not in PARENTS
            )
            assert of_day == sum(
                now[keys.day(self.number, tenant)].get(name, 0) for tenant in set(TENANTS)
            )
        for child, parent in PARENTS.items():
            account = now[keys.progress(self.jobs[child])]
            of_child = tuple(
                account.get(name, 0) for name in ("turns", "input_tokens", "cut_tokens")
            )
            if of_child != self.compared.get(child):
                step = self.store.jobs.read_handoffs(self.jobs[parent], [TEAM])[TEAM]
                assert of_child == (step.turns, step.input_tokens, step.cut_tokens)
                self.compared[child] = of_child

    def teardown(self) -> None:
        """Check that nothing is reserved at the end."""
        if not hasattr(self, "jobs"):
            return
        for job_id in self.jobs:
            self.drop(job_id, *map(HandoffId, HANDOFFS))
        assert not any(
            value
            for account in self.read().values()
            for name, value in account.items()
            if name.startswith("reserved")
        )

    def drop(self, job_id: JobId, *handoffs: HandoffId) -> None:
        version = version_of(self.store, job_id)
        self.store.journal.commit(
            Commit(job_id=job_id, expected=version, events=[CancelRequested()], drop=list(handoffs))
        )

    def never(self, name: Name, worst: WorstCase) -> list[list[str]]:
        """Return the levels and limits that cannot allow this call, even after all refunds."""
        call_cost = {measure.stored_limit: measure.get_worst(worst) for measure in MEASURES}
        now = self.read()
        levels = self.levels(*name)
        names = ["handoff", "job", *["ancestor"] * (len(levels) - 4), "tenant", "installation"]
        return [
            [level, limit]
            for level, (key, limits) in zip(names, levels, strict=True)
            for limit, most in limits.items()
            if _spent(now[key])[limit] + call_cost[limit] > most
        ]

    def levels(self, job: int, handoff: str) -> list[tuple[str, dict[str, int]]]:
        """Return the keys and limits of a handoff, its job and the job's ancestors, its
        tenant's day and the day.
        """
        tenant, jobs = TENANTS[job], [job]
        while jobs[-1] in PARENTS:
            jobs.append(PARENTS[jobs[-1]])
        own_level = (keys.handoff(self.jobs[job], "researcher", HandoffId(handoff)), HANDOFF_LIMITS)
        of_jobs = [(keys.progress(self.jobs[job_index]), JOB_LIMITS) for job_index in jobs]
        return [
            own_level,
            *of_jobs,
            (keys.day(self.number, tenant), TENANT_LIMITS),
            (self.day, DAY_LIMITS),
        ]

    def read(self) -> dict[str, dict[str, int]]:
        """Return all accounts, read in one round trip."""
        names = list(dict.fromkeys(key for name in NAMES for key, _ in self.levels(*name)))
        pipe = self.store.connection.redis.pipeline(transaction=False)
        for key in names:
            pipe.hgetall(key)
        return {key: _figures(account) for key, account in zip(names, pipe.execute(), strict=True)}


def _figures(account: dict[bytes, bytes]) -> dict[str, int]:
    return {
        name.decode(): int(value)
        for name, value in account.items()
        if value.isdigit() or value[:1] == b"-"
    }


def _spent(account: dict[str, int]) -> dict[str, int]:
    spent: dict[str, int] = {}
    for measure in MEASURES:
        spent[measure.stored_limit] = sum(account.get(each.total, 0) for each in measure.amounts)
    return spent


def test_a_limit_of_each_measure_is_drawn() -> None:
    assert JOB_LIMITS.keys() == {measure.stored_limit for measure in MEASURES}


@pytest.mark.slow
def test_the_accounts_balance_and_no_limit_is_exceeded_after_any_sequence(
    store: Store,
) -> None:
    class OnThisStore(BudgetMachine):
        pass

    OnThisStore.store = store
    run_state_machine_as_test(
        OnThisStore,
        settings=settings(
            draws(60), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )
