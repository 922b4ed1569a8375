"""The path of the CLI that the Claude Agent SDK contains, and the check that this process can
start it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from handoff_queue.shared.settings.optional_packages import PACKAGES, describe_missing_package

EXTRA = "agent-sdk"
"""Extra of the package, and value of `runner` in a specialist's file."""


def find_cli_path() -> Path:
    """Return the path of the CLI in the package `claude_agent_sdk`. It may not exist.

    A CLI elsewhere on this machine is not used, because its version is not
    pinned.
    """
    spec = find_spec("claude_agent_sdk")
    folder = Path("claude_agent_sdk")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent
    return folder / "_bundled" / "claude"


def find_agent_sdk_fault() -> str:
    """Return the reason why this process cannot run `runner: agent-sdk`, or ""."""
    for package in PACKAGES[EXTRA]:
        if find_spec(package) is None:
            return describe_missing_package(package, "runner: agent-sdk", EXTRA)
    if not find_cli_path().is_file():
        return (
            "the package claude-agent-sdk has no CLI for this platform"
            f" ({sys.platform}): remove `runner`, or use a worker on another platform"
        )
    return ""
