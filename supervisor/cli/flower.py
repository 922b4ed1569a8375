"""Flower beside the system: with what options, and where it keeps what it has seen."""

from __future__ import annotations

from pathlib import Path

from supervisor.cli.celery_process import celery_command

OPTIONS = (
    "--read_only",
    "--persistent=True",
    "--max_tasks=20000",  # the newest; writing down so many takes 0.6 s, in which the page does not answer
    "--state_save_interval=15000",  # ms; besides, it saves when it is told to end
    "--tasks_columns=name,uuid,state,result,exception,received,runtime,worker",  # `exception` says why a task waits again, or has failed
)
"""Of every Flower; docker-compose.yml has them, too."""


def flower_command(folder: Path, port: int) -> list[str]:
    """What it keeps below `folder` is a pickle, and runs what stands in it when it is read: nobody else may write there."""
    kept = folder / "flower"
    kept.mkdir(mode=0o700, exist_ok=True)
    return celery_command(
        "supervisor.app",
        "flower",
        "--address=127.0.0.1",
        f"--port={port}",
        f"--db={kept / 'state'}",
        *OPTIONS,
    )
