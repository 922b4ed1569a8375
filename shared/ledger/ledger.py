"""The ledger as one thing: made once in a process, shared by its threads."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config import Settings
from shared.drain import Drain
from shared.ledger.blobs import Blobs
from shared.ledger.claims import Claims
from shared.ledger.connection import Connection
from shared.ledger.days import Days
from shared.ledger.dead import DeadLetters
from shared.ledger.health import Health
from shared.ledger.jobs import Jobs
from shared.ledger.journal import Journal
from shared.ledger.pauses import Pauses
from shared.ledger.roles import Roles


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything about jobs in Redis."""

    connection: Connection
    journal: Journal
    blobs: Blobs
    claims: Claims
    jobs: Jobs
    days: Days
    roles: Roles
    pauses: Pauses
    dead: DeadLetters
    health: Health


def open_ledger(redis_url: str, settings: Settings, *, drain: Drain | None = None) -> Ledger:
    """Nothing is sent until something is asked. `drain`: set when this process is shutting down."""
    connection = Connection(redis_url)
    keep_s = settings.retention_s
    journal = Journal(connection, keep_s)
    return Ledger(
        connection=connection,
        journal=journal,
        blobs=Blobs(connection, keep_s),
        claims=Claims(connection, journal, settings, drain or Drain()),
        jobs=Jobs(connection),
        days=Days(connection),
        roles=Roles(connection),
        pauses=Pauses(connection),
        dead=DeadLetters(connection, keep_s),
        health=Health(connection),
    )
