"""An attempt over the real store charges each amount of the budgets, and each limit ends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.runner_factory import AgentSetup
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES, Amount, Measure
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import MAX_MICROUSD, HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.testing import tool_call_reply
from tests.doubles.agent_runs import answer_reply
from tests.doubles.handoffs import a_handoff, a_spec, a_tool
from tests.doubles.jobs import a_job, accounts, handoff_key, issue_handoff
from tests.doubles.scripted_model import ScriptedModel, replies_in_order

SETTINGS = Settings(lease_s=3_600, anthropic_api_key=SecretStr("a-key"))
TOOL_CALLS = 4
"""Turns of the script that call a tool, before the turn with the answer."""


class Bench:
    """Runs attempts of one handoff each."""

    def __init__(self, store: Store, redis_url: str) -> None:
        self.store = store
        self.leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)

    def run(
        self, own: HandoffLimits | None = None, of_job: dict[str, int] | None = None
    ) -> tuple[AgentHandoff, HandoffResult]:
        """Run a handoff that calls a tool several times and then answers.

        Args:
            own: limits of the handoff.
            of_job: limits of its job, by their fields in Redis.
        """
        calls = [tool_call_reply(("look", {"q": f"q{number}"})) for number in range(TOOL_CALLS)]
        script = replies_in_order(*calls, answer_reply("Rust.", claims=[]))
        attempts = Attempts(
            self.store,
            SETTINGS,
            "w1",
            self.leases,
            PayloadCache(self.store),
            Models(SETTINGS, lambda _: ScriptedModel(script)),
        )
        spec = a_spec("look").to_json()
        handoff = a_handoff(
            limits=own, job_id=a_job(self.store, **(of_job or {})), specialist=compute_digest(spec)
        )
        issue_handoff(self.store, handoff, spec)
        result = attempts.attempt(handoff.to_json(), handoff, set_up_agent).result
        assert result is not None
        return handoff, result

    def used_by_job(self, job_id: JobId, measure: Measure) -> int:
        """Return the sum of the totals in the job's account."""
        account = accounts(self.store, job_id)
        return sum(account[amount.total] for amount in measure.amounts)


@pytest.fixture
def bench(store: Store, redis_url: str) -> Iterator[Bench]:
    bench = Bench(store, redis_url)
    yield bench
    bench.leases.stop()


def set_up_agent(
    handoff: AgentHandoff, _spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
) -> AgentSetup:
    answer_format = EnvelopeFormat(
        handoff.step_id, handoff.expected_output_format, documents.sources, loaded.collect_claims()
    )
    look = a_tool("look", lambda arguments: f"nothing about {arguments['q']}")
    return replace(AgentSetup(answer_format), tools=(look,))


@pytest.mark.parametrize("amount", AMOUNTS, ids=lambda amount: amount.name)
def test_an_attempt_raises_the_total_of_each_amount(bench: Bench, amount: Amount) -> None:
    handoff, result = bench.run()
    account = handoff_key(bench.store, handoff.job_id, handoff.handoff_id)
    of_handoff = int(bench.store.connection.redis.hget(account, amount.total) or 0)

    assert of_handoff > 0
    assert accounts(bench.store, handoff.job_id)[amount.total] == of_handoff
    assert amount.used(result) == of_handoff


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_an_attempt_that_needs_more_than_a_limit_of_its_job_stops(
    bench: Bench, measure: Measure
) -> None:
    handoff, whole = bench.run(of_job={measure.stored_limit: MAX_MICROUSD})
    needed = bench.used_by_job(handoff.job_id, measure)
    handoff, cut_short = bench.run(of_job={measure.stored_limit: needed - 1})

    assert whole.stop_reason is StopReason.FINISHED
    assert cut_short.stop_reason is StopReason.JOB_BUDGET
    assert bench.used_by_job(handoff.job_id, measure) < needed


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_an_attempt_that_needs_more_than_its_own_limit_stops_with_the_reason_of_the_measure(
    bench: Bench, measure: Measure
) -> None:
    handoff, _ = bench.run()
    needed = bench.used_by_job(handoff.job_id, measure)
    own = HandoffLimits.model_validate({measure.limit: needed - 1})
    handoff, cut_short = bench.run(own)

    assert cut_short.stop_reason is measure.stop_reason
    assert bench.used_by_job(handoff.job_id, measure) < needed
