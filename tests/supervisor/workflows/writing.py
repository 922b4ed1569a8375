"""Workflow files for tests, and their input files."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.supervisor.workflows import Items, Workflow, read_workflow


def written(folder: Path, steps: str, head: str = "description: A test.\n") -> Path:
    """A file with these steps: one line each, without the dash."""
    path = folder / "test.yaml"
    listed = "".join(f"  - {{{line.strip()}}}\n" for line in steps.strip().splitlines())
    path.write_text(f"{head}steps:\n{listed}", encoding="utf-8")
    return path


UNREVIEWED = "description: A test.\nreview: false\n"
A_ROW = "id: look, specialist: researcher, for_each: rows, task: 'Look at {name}.'"
"""A step for each row."""


def rows(count: int) -> Items:
    return Items(rows=tuple({"name": f"number {n}"} for n in range(count)))


def workflow(folder: Path, steps: str, head: str = "description: A test.\n") -> Workflow:
    return read_workflow(str(written(folder, steps, head)))
