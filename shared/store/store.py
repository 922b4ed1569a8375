"""The store: one object for all data of jobs in Redis. A process makes it once, and its
threads share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.api_tokens import ApiTokens, RequestCounts
from handoff_queue.shared.store.audit import Audit
from handoff_queue.shared.store.claim_grants import Claims
from handoff_queue.shared.store.daily_budget import DailyBudgets
from handoff_queue.shared.store.dead_letters import DeadLetters
from handoff_queue.shared.store.drain import Drain
from handoff_queue.shared.store.evaluation_lease import EvaluationLeases
from handoff_queue.shared.store.evaluations import Evaluations
from handoff_queue.shared.store.fleet_history import History
from handoff_queue.shared.store.fleet_load import FleetLoadReader
from handoff_queue.shared.store.health import Health
from handoff_queue.shared.store.job_summary import JobSummaries
from handoff_queue.shared.store.jobs import Jobs, Traces
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.metrics import Metrics
from handoff_queue.shared.store.pauses import Pauses
from handoff_queue.shared.store.payloads import PayloadStore
from handoff_queue.shared.store.presence import PresenceStore
from handoff_queue.shared.store.queue_repair import QueueRepair
from handoff_queue.shared.store.redis.connection import SOCKET_TIMEOUT_S, Connection
from handoff_queue.shared.store.refused_commands import RefusedCommands
from handoff_queue.shared.store.schedules import Schedules
from handoff_queue.shared.store.spending_history import SpendingHistory
from handoff_queue.shared.store.tenants import Tenants
from handoff_queue.shared.store.user_messages import UserMessages


@dataclass(frozen=True, slots=True)
class Store:
    """The parts of the store, which share one connection pool."""

    connection: Connection
    journal: Journal
    payloads: PayloadStore
    claims: Claims
    jobs: Jobs
    job_summaries: JobSummaries
    evaluation_leases: EvaluationLeases
    daily_budgets: DailyBudgets
    presence: PresenceStore
    queue_repair: QueueRepair
    pauses: Pauses
    dead_letters: DeadLetters
    health: Health
    history: History
    fleet_load: FleetLoadReader
    traces: Traces
    request_counts: RequestCounts
    api_tokens: ApiTokens
    audit: Audit
    refused_commands: RefusedCommands
    metrics: Metrics
    schedules: Schedules
    user_messages: UserMessages
    spending: SpendingHistory
    evaluations: Evaluations
    tenants: Tenants


def open_store(
    redis_url: str,
    settings: Settings,
    *,
    drain: Drain | None = None,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> Store:
    """Return the store. No command is sent yet.

    Args:
        drain: drain of this process; None for a process that makes no claims.
        timeout_s: seconds that Redis may be silent.
    """
    connection = Connection(redis_url, timeout_s=timeout_s)
    keep_s, presence = settings.retention_s, PresenceStore(connection)
    journal = Journal(connection, keep_s)
    return Store(
        connection=connection,
        journal=journal,
        payloads=PayloadStore(connection, keep_s),
        claims=Claims(connection, journal, settings, drain or Drain()),
        jobs=Jobs(connection, settings.lease_s),
        job_summaries=JobSummaries(connection),
        evaluation_leases=EvaluationLeases(connection, journal, settings.lease_s),
        daily_budgets=DailyBudgets(connection),
        presence=presence,
        queue_repair=QueueRepair(connection, presence),
        pauses=Pauses(connection),
        dead_letters=DeadLetters(connection, keep_s),
        health=Health(connection),
        history=History(connection),
        fleet_load=FleetLoadReader(connection, settings.rate_window_s),
        traces=Traces(connection),
        request_counts=RequestCounts(connection),
        api_tokens=ApiTokens(connection),
        audit=Audit(connection),
        refused_commands=RefusedCommands(connection, Audit(connection)),
        metrics=Metrics(connection),
        schedules=Schedules(connection),
        user_messages=UserMessages(connection),
        spending=SpendingHistory(connection),
        evaluations=Evaluations(connection),
        tenants=Tenants(connection, keep_s),
    )
