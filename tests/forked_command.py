"""Run `python -m MODULE` in a forked process whose `sys.executable` is another program.

`python -m tests.forked_command PYTHON MODULE ARGUMENT...`: see `tests.forked_processes`.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Run the module as `__main__`, as in a new interpreter."""
    _, sys.executable, module, *arguments = sys.argv
    sys.argv = ["-m", *arguments]
    sys.modules.pop(module, None)  # the fork server may have imported it as another module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
