"""The ledger as one thing: made once in a process, shared by its threads."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config import Settings
from shared.drain import Drain
from shared.ledger.blobs import Blobs
from shared.ledger.claims import Claims
from shared.ledger.connection import SOCKET_TIMEOUT_S, Connection
from shared.ledger.days import Days
from shared.ledger.dead import DeadLetters
from shared.ledger.glances import Glances
from shared.ledger.health import Health
from shared.ledger.history import History
from shared.ledger.jobs import Jobs
from shared.ledger.journal import Journal
from shared.ledger.load import Loads
from shared.ledger.looks import Looks
from shared.ledger.pauses import Pauses
from shared.ledger.queues import Queues
from shared.ledger.roles import Roles
from shared.ledger.traces import Traces


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
