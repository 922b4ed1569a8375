"""The console script `handoff` before its command line is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pytest

from handoff_queue.shared.types.errors import INTERRUPTED
from handoff_queue.supervisor.cli.entry import main

MODULES = (
    "handoff_queue.supervisor.cli.main",
    "handoff_queue.shared.settings.optional_packages",
)


class CtrlC(MetaPathFinder):
    """Interrupts the import of a module, as a person who presses Ctrl-C early."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if fullname == self.module:
            raise KeyboardInterrupt
        return


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_during_the_import_prints_no_traceback(
    module: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [CtrlC(module), *sys.meta_path])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == INTERRUPTED
    assert capfd.readouterr().err == ""
