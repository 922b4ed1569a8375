"""`python -m tests.fuzz.run TARGET SECONDS`: fuzz one target in this process."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

FOLDER = Path("build/fuzz")
PACKAGES = Path(".venv/fuzz")
"""Folder of atheris: `make fuzz` fills it."""
LIBRARIES = {"cron": "croniter", "pdf": "pypdf", "schema": "jsonschema", "yaml": "yaml"}
"""Library whose branches guide the fuzzer of a target, in addition to our own. To prepare all
libraries takes minutes.
"""
TABLES = ["pypdf._codecs"]
"""Modules of constants."""
MAX_BYTES = 4_096
"""Bytes of the longest input. Longer inputs find the same faults more slowly."""
SECONDS_AN_INPUT = 20
"""Seconds after which an input counts as a hang."""
MAX_MEGABYTES = 2_048


def fuzz(name: str, seconds: int) -> None:
    """Fuzz a target until the time is over or a promise is broken. The process ends then."""
    sys.path.append(str(PACKAGES))
    atheris = importlib.import_module("atheris")
    guides = ["handoff_queue", *filter(None, [LIBRARIES.get(name)])]
    with atheris.instrument_imports(include=guides, exclude=TABLES):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        f"-timeout={SECONDS_AN_INPUT}",
        f"-rss_limit_mb={MAX_MEGABYTES}",
        f"-artifact_prefix={FOLDER / name}-",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], int(sys.argv[2]))
