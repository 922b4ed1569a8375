"""Workflow files for tests."""

from __future__ import annotations

from pathlib import Path

from supervisor.workflows import Workflow, read_workflow


def written(folder: Path, steps: str, head: str = "description: A test.\n") -> Path:
    """A file with these steps: one line each, without the dash."""
    path = folder / "test.yaml"
    listed = "".join(f"  - {{{line.strip()}}}\n" for line in steps.strip().splitlines())
    path.write_text(f"{head}steps:\n{listed}", encoding="utf-8")
    return path


def workflow(folder: Path, steps: str) -> Workflow:
    return read_workflow(str(written(folder, steps)))
