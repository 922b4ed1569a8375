"""Plans that people write down once: YAML files of steps, some of them repeated over files,
lines or rows (docs/how-to/workflows.md).
"""

from __future__ import annotations

from handoff_queue.supervisor.workflows.items_file import Items, read_items
from handoff_queue.supervisor.workflows.library import built_in_workflows, read_workflow
from handoff_queue.supervisor.workflows.workflow import ForEach, Workflow

__all__ = ["ForEach", "Items", "Workflow", "built_in_workflows", "read_items", "read_workflow"]
