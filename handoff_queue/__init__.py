"""A distributed task queue for LLM agents. This module is the public API.

    import handoff_queue

    jobs = handoff_queue.connect("redis://:password@localhost:6379/0")
    request = handoff_queue.Request("Compare Qdrant and pgvector", documents=Path("notes"))
    job_id = jobs.submit(request)
    print(jobs.result(job_id, wait_s=600).answer)

Everything that is not in `__all__`, in `handoff_queue.types` or in `handoff_queue.testing` is
private and may change. A name is imported when it is first used, so that a program loads only
the modules that it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handoff_queue.shared.agent.tool import CallContext, ToolFailed
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store.dead_letters import DeadLetter
    from handoff_queue.shared.store.job_filter import JobFilter
    from handoff_queue.shared.store.job_info import JobInfo
    from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
    from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry
    from handoff_queue.shared.types.errors import (
        BudgetSpent,
        Conflict,
        HandoffError,
        InvalidDocuments,
        ScheduleExists,
        StoreError,
        StoreUnavailable,
        TooManyOpenJobs,
        UnknownJob,
        UnknownSchedule,
        UserError,
    )
    from handoff_queue.shared.types.events import JobEnded, JobStatus, RecordedEvent
    from handoff_queue.shared.types.gates import FactTable, Gates, KnownFact
    from handoff_queue.shared.types.handoff import Citation
    from handoff_queue.shared.types.ids import HandoffId, JobId
    from handoff_queue.shared.types.job_options import (
        ApprovalOf,
        Approvals,
        Mode,
        OnTimeout,
        Priority,
    )
    from handoff_queue.shared.types.limits import JobLimits as Limits
    from handoff_queue.shared.types.limits import NewLimits, OnLimit
    from handoff_queue.shared.types.memory_notes import Note
    from handoff_queue.shared.types.review import Criterion, Rubric
    from handoff_queue.shared.types.schedule import Missed, Overlap, ScheduleStatus
    from handoff_queue.shared.types.usage import Usage
    from handoff_queue.supervisor.client.async_client import AsyncClient, connect_async
    from handoff_queue.supervisor.client.client import Client, connect
    from handoff_queue.supervisor.client.deletion import TenantDeletion
    from handoff_queue.supervisor.client.export import Export
    from handoff_queue.supervisor.client.forks import ForkOptions
    from handoff_queue.supervisor.client.job_outline import JobOutline
    from handoff_queue.supervisor.client.job_result import HandoffReport, JobResult
    from handoff_queue.supervisor.client.repeated_step_rows import Row
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.client.schedules import ScheduleOptions
    from handoff_queue.supervisor.client.submission import Clash
    from handoff_queue.supervisor.client.user_messages import SentMessage
    from handoff_queue.supervisor.gates.facts import read_facts
    from handoff_queue.supervisor.workflows import Items, Workflow, read_items, read_workflow
    from handoff_queue.workers.tools.tool_decorator import tool
else:
    _MODULE_OF = {
        "Actor": "shared.types.audit",
        "AccessLevel": "shared.types.api_tokens",
        "ApiToken": "shared.types.api_tokens",
        "ApprovalOf": "shared.types.job_options",
        "Approvals": "shared.types.job_options",
        "AuditAction": "shared.types.audit",
        "AuditEntry": "shared.types.audit",
        "AsyncClient": "supervisor.client.async_client",
        "BudgetSpent": "shared.types.errors",
        "CallContext": "shared.agent.tool",
        "Citation": "shared.types.handoff",
        "Clash": "supervisor.client.submission",
        "Client": "supervisor.client.client",
        "Conflict": "shared.types.errors",
        "Criterion": "shared.types.review",
        "DeadLetter": "shared.store.dead_letters",
        "Export": "supervisor.client.export",
        "FactTable": "shared.types.gates",
        "FolderReading": "shared.documents.folder",
        "ForkOptions": "supervisor.client.forks",
        "Gates": "shared.types.gates",
        "HandoffError": "shared.types.errors",
        "HandoffId": "shared.types.ids",
        "HandoffReport": "supervisor.client.job_result",
        "InvalidDocuments": "shared.types.errors",
        "Items": "supervisor.workflows",
        "JobEnded": "shared.types.events",
        "JobFilter": "shared.store.job_filter",
        "JobId": "shared.types.ids",
        "JobLimits": "shared.types.limits",
        "JobOutline": "supervisor.client.job_outline",
        "JobResult": "supervisor.client.job_result",
        "JobInfo": "shared.store.job_info",
        "JobStatus": "shared.types.events",
        "KnownFact": "shared.types.gates",
        "StoreError": "shared.types.errors",
        "StoreUnavailable": "shared.types.errors",
        "Missed": "shared.types.schedule",
        "Mode": "shared.types.job_options",
        "NewLimits": "shared.types.limits",
        "Note": "shared.types.memory_notes",
        "OnLimit": "shared.types.limits",
        "OnTimeout": "shared.types.job_options",
        "Overlap": "shared.types.schedule",
        "Priority": "shared.types.job_options",
        "RecordedEvent": "shared.types.events",
        "Request": "supervisor.client.request",
        "Row": "supervisor.client.repeated_step_rows",
        "Rubric": "shared.types.review",
        "ScheduleExists": "shared.types.errors",
        "ScheduleOptions": "supervisor.client.schedules",
        "ScheduleStatus": "shared.types.schedule",
        "SentMessage": "supervisor.client.user_messages",
        "Settings": "shared.settings.settings",
        "TenantDeletion": "supervisor.client.deletion",
        "TooManyOpenJobs": "shared.types.errors",
        "ToolFailed": "shared.agent.tool",
        "UnknownJob": "shared.types.errors",
        "UnknownSchedule": "shared.types.errors",
        "Usage": "shared.types.usage",
        "UserError": "shared.types.errors",
        "Workflow": "supervisor.workflows",
        "connect": "supervisor.client.client",
        "connect_async": "supervisor.client.async_client",
        "read_facts": "supervisor.gates.facts",
        "read_items": "supervisor.workflows",
        "read_workflow": "supervisor.workflows",
        "tool": "workers.tools.tool_decorator",
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
    "AccessLevel",
    "Actor",
    "ApiToken",
    "ApprovalOf",
    "Approvals",
    "AsyncClient",
    "AuditAction",
    "AuditEntry",
    "BudgetSpent",
    "CallContext",
    "Citation",
    "Clash",
    "Client",
    "Conflict",
    "Criterion",
    "DeadLetter",
    "Export",
    "FactTable",
    "FolderReading",
    "ForkOptions",
    "Gates",
    "HandoffError",
    "HandoffId",
    "HandoffReport",
    "InvalidDocuments",
    "Items",
    "JobEnded",
    "JobFilter",
    "JobId",
    "JobInfo",
    "JobOutline",
    "JobResult",
    "JobStatus",
    "KnownFact",
    "Limits",
    "Missed",
    "Mode",
    "NewLimits",
    "Note",
    "OnLimit",
    "OnTimeout",
    "Overlap",
    "Priority",
    "RecordedEvent",
    "Request",
    "Row",
    "Rubric",
    "ScheduleExists",
    "ScheduleOptions",
    "ScheduleStatus",
    "SentMessage",
    "Settings",
    "StoreError",
    "StoreUnavailable",
    "TenantDeletion",
    "TooManyOpenJobs",
    "ToolFailed",
    "UnknownJob",
    "UnknownSchedule",
    "Usage",
    "UserError",
    "Workflow",
    "connect",
    "connect_async",
    "read_facts",
    "read_items",
    "read_workflow",
    "tool",
]
