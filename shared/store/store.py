"""The store as one thing: made once in a process, shared by its threads."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claims import Claims
from handoff_queue.shared.store.daily_budget import DailyBudgets
from handoff_queue.shared.store.dead_letters import DeadLetters
from handoff_queue.shared.store.drain import Drain
from handoff_queue.shared.store.evaluation_lease import EvaluationLeases
from handoff_queue.shared.store.fleet_history import History
from handoff_queue.shared.store.health import Health
from handoff_queue.shared.store.job_summary import JobSummaries
from handoff_queue.shared.store.jobs import Jobs
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.pauses import Pauses
from handoff_queue.shared.store.payloads import PayloadStore
from handoff_queue.shared.store.presence import PresenceStore
from handoff_queue.shared.store.queue_load import FleetLoadReader
from handoff_queue.shared.store.queue_repair import QueueRepair
from handoff_queue.shared.store.redis.connection import SOCKET_TIMEOUT_S, Connection
from handoff_queue.shared.store.traces import Traces


@dataclass(frozen=True, slots=True)
class Store:
    """Everything about jobs in Redis."""

    connection: Connection
    journal: Journal
    blobs: PayloadStore
    claims: Claims
    jobs: Jobs
    glances: JobSummaries
    looks: EvaluationLeases
    days: DailyBudgets
    roles: PresenceStore
    queues: QueueRepair
    pauses: Pauses
    dead: DeadLetters
    health: Health
    history: History
    loads: FleetLoadReader
    traces: Traces


def open_store(
    redis_url: str,
    settings: Settings,
    *,
    drain: Drain | None = None,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> Store:
    """Nothing is sent until something is asked. `drain`: set when this process is shutting
    down. `timeout_s`: how long Redis may be silent.
    """
    connection = Connection(redis_url, timeout_s=timeout_s)
    keep_s, roles = settings.retention_s, PresenceStore(connection)
    journal = Journal(connection, keep_s)
    return Store(
        connection=connection,
        journal=journal,
        blobs=PayloadStore(connection, keep_s),
        claims=Claims(connection, journal, settings, drain or Drain()),
        jobs=Jobs(connection, settings.lease_s),
        glances=JobSummaries(connection),
        looks=EvaluationLeases(connection, journal, settings.lease_s),
        days=DailyBudgets(connection),
        roles=roles,
        queues=QueueRepair(connection, roles),
        pauses=Pauses(connection),
        dead=DeadLetters(connection, keep_s),
        health=Health(connection),
        history=History(connection),
        loads=FleetLoadReader(connection, settings.rate_window_s),
        traces=Traces(connection),
    )
