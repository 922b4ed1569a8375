"""The console script `handoff`. A client-only install has it too.

This module imports nothing from the extra `cli`.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""`INTERRUPTED` of the module of errors, whose import a Ctrl-C may stop."""


def main() -> None:
    """Run the command line. A Ctrl-C during the imports ends the process without a traceback."""
    try:
        _run()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


def _run() -> None:
    """Run the command line, or print one line about missing packages."""
    from handoff_queue.shared.local.fast_exit import without_teardown
    from handoff_queue.shared.settings.optional_packages import check_extra, without_collection
    from handoff_queue.shared.types.errors import UserError

    try:
        check_extra("cli", "the command handoff", "cli")
    except UserError as error:
        sys.stderr.write(f"handoff: {error}\n")
        raise SystemExit(error.exit_code) from None
    with without_teardown():
        with without_collection():  # the import needs the packages of the extra
            from handoff_queue.supervisor.cli.main import main as run

        run()
