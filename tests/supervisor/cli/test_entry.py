"""The console script `handoff` before its command line is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pytest

from handoff_queue.shared.types.errors import INTERRUPTED
from handoff_queue.supervisor.cli.entry import main

MAIN = "handoff_queue.supervisor.cli.main"


class CtrlC(MetaPathFinder):
    """Interrupts the import of the command line, as a person who presses Ctrl-C early."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == MAIN:
            raise KeyboardInterrupt
        return


def test_ctrl_c_during_the_import_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, MAIN, raising=False)
    monkeypatch.setattr(sys, "meta_path", [CtrlC(), *sys.meta_path])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == INTERRUPTED
    assert capfd.readouterr().err == ""
