"""The image starts `handoff` with the arguments of the container."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.docs.pages import ROOT


def test_a_container_that_starts_again_removes_the_ready_file_of_its_killed_process(
    tmp_path: Path,
) -> None:
    (text,) = re.findall(
        r"^ENTRYPOINT (.+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    ready = tmp_path / "ready"
    ready.touch()
    program = tmp_path / "handoff"
    program.write_text('#!/bin/sh\nls "$HANDOFF_READY_FILE" 2>/dev/null; printf "<%s>" $$ "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HANDOFF_READY_FILE": str(ready)}

    process = subprocess.Popen(
        [*json.loads(text), "worker", "two words"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=60)

    assert output == f"<{process.pid}><worker><two words>", "a signal reaches this process"
