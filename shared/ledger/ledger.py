"""The ledger as one thing: made once in a process, shared by its threads."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.config import Settings
from handoff_queue.shared.drain import Drain
from handoff_queue.shared.ledger.blobs import Blobs
from handoff_queue.shared.ledger.claims import Claims
from handoff_queue.shared.ledger.connection import SOCKET_TIMEOUT_S, Connection
from handoff_queue.shared.ledger.days import Days
from handoff_queue.shared.ledger.dead import DeadLetters
from handoff_queue.shared.ledger.glances import Glances
from handoff_queue.shared.ledger.health import Health
from handoff_queue.shared.ledger.history import History
from handoff_queue.shared.ledger.jobs import Jobs
from handoff_queue.shared.ledger.journal import Journal
from handoff_queue.shared.ledger.load import Loads
from handoff_queue.shared.ledger.looks import Looks
from handoff_queue.shared.ledger.pauses import Pauses
from handoff_queue.shared.ledger.queues import Queues
from handoff_queue.shared.ledger.roles import Roles
from handoff_queue.shared.ledger.traces import Traces


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything about jobs in Redis."""

    connection: Connection
    journal: Journal
    blobs: Blobs
    claims: Claims
    jobs: Jobs
    glances: Glances
    looks: Looks
    days: Days
    roles: Roles
    queues: Queues
    pauses: Pauses
    dead: DeadLetters
    health: Health
    history: History
    loads: Loads
    traces: Traces


def open_ledger(
    redis_url: str,
    settings: Settings,
    *,
    drain: Drain | None = None,
    timeout_s: float = SOCKET_TIMEOUT_S,
) -> Ledger:
    """Nothing is sent until something is asked. `drain`: set when this process is shutting down. `timeout_s`: how long Redis may be
    silent.
    """
    connection = Connection(redis_url, timeout_s=timeout_s)
    keep_s, roles = settings.retention_s, Roles(connection)
    journal = Journal(connection, keep_s)
    return Ledger(
        connection=connection,
        journal=journal,
        blobs=Blobs(connection, keep_s),
        claims=Claims(connection, journal, settings, drain or Drain()),
        jobs=Jobs(connection, settings.lease_s),
        glances=Glances(connection),
        looks=Looks(connection, journal, settings.lease_s),
        days=Days(connection),
        roles=roles,
        queues=Queues(connection, roles),
        pauses=Pauses(connection),
        dead=DeadLetters(connection, keep_s),
        health=Health(connection),
        history=History(connection),
        loads=Loads(connection, settings.rate_window_s),
        traces=Traces(connection),
    )
