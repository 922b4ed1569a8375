"""Options and stored data of Flower."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from handoff_queue.shared.local.run_directory import read_private, write_private
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.celery_process import build_celery_command

OPTIONS = (
    "--read_only",
    "--persistent=True",
    # the newest tasks; to save this many takes 0.6 s, in which Flower does not answer
    "--max_tasks=20000",
    "--state_save_interval=15000",  # ms; Flower also saves at its end
    # `exception` tells why a task waits again or failed
    "--tasks_columns=name,uuid,state,result,exception,received,runtime,worker",
)
"""Options of every Flower. docker-compose.yml has the same."""


_STORED_IN = "flower-password"
_PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,64}")


def load_flower_password(folder: Path) -> str:
    """Return Flower's password for this home folder. The first call generates and stores it.

    A new password replaces a stored password that other users could read, or that is
    malformed.

    Raises:
        UserError: the file cannot be written.
    """
    file = folder / _STORED_IN
    stored_password = read_private(file)
    if stored_password is not None and _PASSWORD.fullmatch(stored_password):
        return stored_password
    password = secrets.token_urlsafe(12)
    try:
        write_private(file, password)
    except OSError as error:
        raise UserError(
            f"{file} cannot be written ({error.strerror}): remove it, or choose another folder with"
            " --home"
        ) from error
    return password


def build_flower_command(folder: Path, port: int) -> list[str]:
    """Return the command line of Flower.

    Flower keeps its state below `folder` as a pickle, which can run code when it is read. Only
    the user may write there.
    """
    state_folder = folder / "flower"
    state_folder.mkdir(mode=0o700, exist_ok=True)
    return build_celery_command(
        "handoff_queue.supervisor.app",
        "flower",
        "--address=127.0.0.1",
        f"--port={port}",
        f"--db={state_folder / 'state'}",
        *OPTIONS,
    )
