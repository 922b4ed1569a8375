"""The processes of `handoff chaos` run in the same way in each shell."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.chaos.fleet import Size, build_environment


def test_the_fleet_uses_no_keys_of_the_shell(tmp_path: Path) -> None:
    environment = build_environment(tmp_path, "redis://127.0.0.1:1/0", Size(), "http://127.0.0.1:2")

    assert environment["HANDOFF_KEYS"] == environment["HANDOFF_SIGNING_KEY"] == ""
