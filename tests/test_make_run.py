"""`make run` passes JOB and DOCS to `handoff run`, with the example as the default.

A shell script in place of Python prints its arguments.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run-job"
EXAMPLE = "examples/vector-databases"


@pytest.mark.parametrize(
    ("job", "docs", "request_text", "folder"),
    [
        (
            "",
            "",
            (
                "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable"
                " storage"
            ),
            EXAMPLE,
        ),
        ("What is HNSW?", "", "What is HNSW?", EXAMPLE),
        ("It's $HOME", "my notes", "It's $HOME", "my notes"),
    ],
)
def test_make_run_uses_the_example_for_missing_arguments(
    tmp_path: Path, job: str, docs: str, request_text: str, folder: str
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)

    environment = {**os.environ, "HANDOFF_MAKE_JOB": job, "HANDOFF_MAKE_DOCS": docs}
    completed = subprocess.run(
        [SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    expected = ["run", "--allow-partial", request_text, "--docs", folder]
    assert completed.stdout.splitlines()[-5:] == expected
