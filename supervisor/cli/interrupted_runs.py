"""The Redis data of interrupted runs on a private Redis.

A private Redis ends with its run. On Ctrl-C its append-only file is moved to the cache folder,
so that `handoff retry` can continue the run, because its finished turns have cost money.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.ids import JobId, is_job_id_prefix
from handoff_queue.supervisor.client.job_lookup import get_only_match

_VARIABLES = "variables.json"


def _get_folder(settings: Settings) -> Path:
    return settings.cache_folder / "interrupted"


def keep_run(
    settings: Settings, job_id: str, data: Path, worker_variables: Mapping[str, str]
) -> bool:
    """Move the data of an ended Redis to the cache folder. Return False if that fails.

    Then delete the data of runs that are older than HANDOFF_RETENTION_S.

    Args:
        job_id: job id, or the name of an evaluation or a comparison.
        worker_variables: environment variables of the workers.
    """
    target = _get_folder(settings) / job_id
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700)
        shutil.move(data, target / "redis")
        (target / _VARIABLES).write_text(json.dumps(dict(worker_variables)))
    except OSError:
        return False
    _forget_older_than(settings.retention_s, _get_folder(settings))
    return True


def is_kept(settings: Settings, name: str) -> bool:
    """Return whether the data of the run with this name is kept."""
    return (_get_folder(settings) / name).is_dir()


def find_kept_job(settings: Settings, text: str) -> JobId:
    """Return the only kept job with an id that begins with this text.

    Raises:
        UnknownJob: no such job was kept. The message names the kept jobs.
        UserError: the text is not the beginning of an id, or several kept ids begin with it.
    """
    if not is_job_id_prefix(text):
        raise UserError(
            f"{text!r:.82} is not a job id: copy an id such as j-k5tq2wbz7x3mhd4n, which the"
            " command of the job printed"
        )
    matches: list[JobId] = []
    for name in find_kept_jobs(settings):
        if name.startswith(text):
            matches.append(name)
    if not matches:
        kept_jobs = ", ".join(find_kept_jobs(settings)) or "none"
        raise UnknownJob(
            f"this machine has no interrupted run {text} (it has: {kept_jobs});"
            " for a job on a broker, set HANDOFF_REDIS_URL"
        )
    return get_only_match(text, matches)


def find_kept_jobs(settings: Settings) -> list[JobId]:
    """Return the jobs of all kept `handoff run` commands, without evaluations."""
    return sorted(JobId(path.name) for path in _get_folder(settings).glob("j-*"))


def read_worker_variables(settings: Settings, job_id: str) -> dict[str, str]:
    """Return the environment variables of the workers of a kept run.

    Raises:
        UserError: the file with the variables cannot be read.
    """
    place = _get_folder(settings) / job_id
    try:
        variables: dict[str, str] = json.loads((place / _VARIABLES).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"the kept data of {job_id} cannot be read: remove {place}") from error
    return variables


def restore(settings: Settings, job_id: str, folder: Path) -> None:
    """Copy the data of a kept run to `folder`. The original stays in case this run fails too."""
    shutil.copytree(_get_folder(settings) / job_id / "redis", folder / "redis")


def forget(settings: Settings, job_id: str) -> None:
    """Remove the data of a kept run. Without such data, nothing happens."""
    shutil.rmtree(_get_folder(settings) / job_id, ignore_errors=True)


def _forget_older_than(seconds: float, folder: Path) -> None:
    for place in folder.glob("*"):
        with suppress(OSError):
            if place.stat().st_mtime < time.time() - seconds:
                shutil.rmtree(place, ignore_errors=True)
