"""Workflows: plans in YAML files, with steps that may be repeated over files, lines or rows."""

from __future__ import annotations

from handoff_queue.supervisor.workflows.items_file import Items, read_items
from handoff_queue.supervisor.workflows.library import (
    load_built_in_workflows,
    read_workflow,
    workflow_named,
)
from handoff_queue.supervisor.workflows.parser import workflow_in
from handoff_queue.supervisor.workflows.workflow import ForEach, Workflow

__all__ = [
    "ForEach",
    "Items",
    "Workflow",
    "load_built_in_workflows",
    "read_items",
    "read_workflow",
    "workflow_in",
    "workflow_named",
]
