"""The store: one object for all data of jobs in Redis. A process makes it once, and its
threads share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.settings.redis_url import URL_VARIABLE
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.api_tokens import ApiTokens, RequestCounts
from handoff_queue.shared.store.audit import Audit
from handoff_queue.shared.store.claim_requests import Claims
from handoff_queue.shared.store.daily_budgets import DailyBudgets
from handoff_queue.shared.store.dead_letters import DeadLetters
from handoff_queue.shared.store.due_work import DueWork, UnwantedBatches
from handoff_queue.shared.store.encryption_at_rest import Sealing
from handoff_queue.shared.store.fleet_history import History
from handoff_queue.shared.store.fleet_load import FleetLoadReader
from handoff_queue.shared.store.golden_set_history import Evaluations
from handoff_queue.shared.store.graceful_shutdown import Drain
from handoff_queue.shared.store.health import Health
from handoff_queue.shared.store.job_evaluation_lease import EvaluationLeases
from handoff_queue.shared.store.job_ids import JobIds
from handoff_queue.shared.store.job_summary import JobSummaries
from handoff_queue.shared.store.jobs import Jobs, Traces
from handoff_queue.shared.store.journal import Journal
from handoff_queue.shared.store.journal_signature_check import RefusedEvents
from handoff_queue.shared.store.memory_notes import Notes
from handoff_queue.shared.store.metrics import Metrics
from handoff_queue.shared.store.pauses import Pauses
from handoff_queue.shared.store.payloads import PayloadStore
from handoff_queue.shared.store.presence import PresenceStore
from handoff_queue.shared.store.prompt_prefixes import PromptPrefixes
from handoff_queue.shared.store.queue_repair import QueueRepair
from handoff_queue.shared.store.redis.connection import SOCKET_TIMEOUT_S, Connection
from handoff_queue.shared.store.refusals import Refusals
from handoff_queue.shared.store.schedules import Schedules
from handoff_queue.shared.store.spending_history import SpendingHistory
from handoff_queue.shared.store.tenant_keys import open_tenant_keys
from handoff_queue.shared.store.tenants import Tenants
from handoff_queue.shared.store.user_messages import UserMessages
from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.trust.signatures import Trust, open_trust
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.ids import JobId

MAX_REASON_CHARS = 1_000
"""Most characters of a reason in the audit stream."""


@dataclass(frozen=True, slots=True)
class Store:
    """The parts of the store, which share one connection pool."""

    connection: Connection
    journal: Journal
    payloads: PayloadStore
    claims: Claims
    jobs: Jobs
    job_ids: JobIds
    due_work: DueWork
    refused_events: RefusedEvents
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
    refusals: Refusals
    metrics: Metrics
    schedules: Schedules
    user_messages: UserMessages
    spending: SpendingHistory
    evaluations: Evaluations
    tenants: Tenants
    notes: Notes
    prompt_prefixes: PromptPrefixes
    unwanted_batches: UnwantedBatches
    trust: Trust
    """The keys of this process."""

    def refuse(self, subject: str, queue: str, reason: str, body: str) -> None:
        """Record a message that nothing may use, because its signature does not hold: as a dead
        letter, and in the audit stream. A worker may not write to the audit stream, so it makes a
        report, which a supervisor moves.

        Args:
            subject: the job or the worker that the message is about.
        """
        self.dead_letters.add(queue, reason, body)
        entry = AuditEntry(
            at=self.connection.now(),
            action=AuditAction.REFUSE,
            subject=subject,
            detail=reason[:MAX_REASON_CHARS],
        )
        if self.trust.signer.may(Right.DECIDE):
            self.audit.add(entry)
        else:
            self.refusals.report(entry)


def open_store(
    redis_url: str,
    settings: Settings,
    *,
    drain: Drain | None = None,
    timeout_s: float = SOCKET_TIMEOUT_S,
    url_name: str = URL_VARIABLE,
) -> Store:
    """Return the store. No command is sent yet.

    Raises:
        UserError: the files of keys are missing or wrong.

    Args:
        drain: drain of this process; None for a process that makes no claims.
        timeout_s: seconds that Redis may be silent.
        url_name: name of the URL in errors.
    """
    trust = open_trust(settings)
    connection = Connection(redis_url, timeout_s=timeout_s, url_name=url_name)
    connection.sealing = Sealing(
        open_tenant_keys(settings), lambda job_id: _find_tenant(connection, job_id)
    )
    keep_s = settings.retention_s
    presence = PresenceStore(connection, trust)
    journal = Journal(connection, keep_s, trust)
    return Store(
        connection=connection,
        journal=journal,
        payloads=PayloadStore(connection, keep_s),
        claims=Claims(connection, journal, settings, drain or Drain(), trust),
        jobs=Jobs(connection),
        job_ids=JobIds(connection),
        due_work=DueWork(connection, settings.lease_s),
        refused_events=RefusedEvents(connection),
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
        refusals=Refusals(connection, Audit(connection)),
        metrics=Metrics(connection),
        schedules=Schedules(connection),
        user_messages=UserMessages(connection, trust),
        spending=SpendingHistory(connection),
        evaluations=Evaluations(connection),
        tenants=Tenants(connection, keep_s),
        notes=Notes(connection),
        prompt_prefixes=PromptPrefixes(connection),
        unwanted_batches=UnwantedBatches(connection),
        trust=trust,
    )


def _find_tenant(connection: Connection, job_id: JobId) -> str | None:
    return Jobs(connection).find_owner(job_id)
