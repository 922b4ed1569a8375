"""Run `python -m MODULE` in a session with its stdin as the controlling terminal, as in a terminal
window. The end of the terminal sends SIGHUP.

`python -m tests.on_a_controlling_terminal MODULE ARGUMENT...`
"""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import sys
import termios


def main() -> None:
    """Start the session, and run the module as `__main__`."""
    _, module, *arguments = sys.argv
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run in the background may ignore it
    sys.argv = ["-m", *arguments]
    sys.modules.pop(module, None)  # the fork server may have imported it as another module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
