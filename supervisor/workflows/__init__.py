"""Workflows: plans in YAML files, with steps that may be repeated over files, lines or rows."""

from __future__ import annotations

from handoff_queue.supervisor.workflows.items_file import Items, read_items
from handoff_queue.supervisor.workflows.library import read_named_workflow, read_workflow
from handoff_queue.supervisor.workflows.parser import parse_workflow
from handoff_queue.supervisor.workflows.workflow import ForEach, Workflow

__all__ = [
    "ForEach",
    "Items",
    "Workflow",
    "parse_workflow",
    "read_items",
    "read_named_workflow",
    "read_workflow",
]
