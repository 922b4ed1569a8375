"""A distributed task queue for LLM agents. This module is the public API.

    import handoff_queue

    jobs = handoff_queue.connect("redis://:password@localhost:6379/0")
    job_id = jobs.submit(handoff_queue.Request("Compare Qdrant and pgvector", documents=Path("notes")))
    print(jobs.result(job_id, wait_s=600).answer)

Everything that is not in `__all__` is private and may change. A name is imported when it is first
used, so that a program does not load what it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handoff_queue.shared.agent.tool import CallContext, ToolFailed
    from handoff_queue.shared.ledger.dead import DeadLetter
    from handoff_queue.shared.ledger.jobs import JobFilter, JobStanding
    from handoff_queue.shared.wire.approval import ApprovalOf, Approvals, OnTimeout
    from handoff_queue.shared.wire.errors import (
        BudgetSpent,
        Conflict,
        HandoffError,
        InvalidDocuments,
        LedgerError,
        LedgerUnavailable,
        UnknownJob,
        UserError,
    )
    from handoff_queue.shared.wire.events import JobEnded, JobStatus, Recorded
    from handoff_queue.shared.wire.facts import FactTable
    from handoff_queue.shared.wire.gates import Gates
    from handoff_queue.shared.wire.ids import HandoffId, JobId
    from handoff_queue.shared.wire.limits import JobLimits as Limits
    from handoff_queue.shared.wire.limits import NewLimits, OnLimit
    from handoff_queue.shared.wire.mode import Mode
    from handoff_queue.shared.wire.priority import Priority
    from handoff_queue.shared.wire.rubric import Rubric
    from handoff_queue.supervisor.async_client import AsyncClient, connect_async
    from handoff_queue.supervisor.client import Client, connect
    from handoff_queue.supervisor.export import Export
    from handoff_queue.supervisor.handoff_report import HandoffReport
    from handoff_queue.supervisor.measures.facts import read_facts
    from handoff_queue.supervisor.outline import JobOutline
    from handoff_queue.supervisor.report import JobResult
    from handoff_queue.supervisor.request import Request
    from handoff_queue.supervisor.rows import Row
    from handoff_queue.supervisor.submission import Clash
    from handoff_queue.supervisor.workflows import Items, Workflow, read_items, read_workflow
    from handoff_queue.workers.tools.marks import tool
else:
    _MODULE_OF = {
        "ApprovalOf": "shared.wire.approval",
        "Approvals": "shared.wire.approval",
        "AsyncClient": "supervisor.async_client",
        "BudgetSpent": "shared.wire.errors",
        "CallContext": "shared.agent.tool",
        "Clash": "supervisor.submission",
        "Client": "supervisor.client",
        "Conflict": "shared.wire.errors",
        "DeadLetter": "shared.ledger.dead",
        "Export": "supervisor.export",
        "FactTable": "shared.wire.facts",
        "Gates": "shared.wire.gates",
        "HandoffError": "shared.wire.errors",
        "HandoffId": "shared.wire.ids",
        "HandoffReport": "supervisor.handoff_report",
        "InvalidDocuments": "shared.wire.errors",
        "Items": "supervisor.workflows",
        "JobEnded": "shared.wire.events",
        "JobFilter": "shared.ledger.jobs",
        "JobId": "shared.wire.ids",
        "JobLimits": "shared.wire.limits",
        "JobOutline": "supervisor.outline",
        "JobResult": "supervisor.report",
        "JobStanding": "shared.ledger.jobs",
        "JobStatus": "shared.wire.events",
        "LedgerError": "shared.wire.errors",
        "LedgerUnavailable": "shared.wire.errors",
        "Mode": "shared.wire.mode",
        "NewLimits": "shared.wire.limits",
        "OnLimit": "shared.wire.limits",
        "OnTimeout": "shared.wire.approval",
        "Priority": "shared.wire.priority",
        "Recorded": "shared.wire.events",
        "Request": "supervisor.request",
        "Row": "supervisor.rows",
        "Rubric": "shared.wire.rubric",
        "ToolFailed": "shared.agent.tool",
        "UnknownJob": "shared.wire.errors",
        "UserError": "shared.wire.errors",
        "Workflow": "supervisor.workflows",
        "connect": "supervisor.client",
        "connect_async": "supervisor.async_client",
        "read_facts": "supervisor.measures.facts",
        "read_items": "supervisor.workflows",
        "read_workflow": "supervisor.workflows",
        "tool": "workers.tools.marks",
    }
    _OTHER_NAMES = {"Limits": "JobLimits"}

    def __getattr__(name: str) -> Any:
        inner = _OTHER_NAMES.get(name, name)
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[inner]}"), inner)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "ApprovalOf",
    "Approvals",
    "AsyncClient",
    "BudgetSpent",
    "CallContext",
    "Clash",
    "Client",
    "Conflict",
    "DeadLetter",
    "Export",
    "FactTable",
    "Gates",
    "HandoffError",
    "HandoffId",
    "HandoffReport",
    "InvalidDocuments",
    "Items",
    "JobEnded",
    "JobFilter",
    "JobId",
    "JobOutline",
    "JobResult",
    "JobStanding",
    "JobStatus",
    "LedgerError",
    "LedgerUnavailable",
    "Limits",
    "Mode",
    "NewLimits",
    "OnLimit",
    "OnTimeout",
    "Priority",
    "Recorded",
    "Request",
    "Row",
    "Rubric",
    "ToolFailed",
    "UnknownJob",
    "UserError",
    "Workflow",
    "connect",
    "connect_async",
    "read_facts",
    "read_items",
    "read_workflow",
    "tool",
]
