"""Work of embedded runs that were interrupted: the Redis data of each, so that the next run of the same name goes on where it stopped.

An embedded run's Redis is gone with it. What it had done was paid for, so on Ctrl-C its append-only file is moved here first.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from shared.config import Settings
from shared.wire.errors import UnknownJob, UserError

_SURROUNDINGS = "surroundings.json"


def _folder(settings: Settings) -> Path:
    return settings.cache_folder / "interrupted"


def keep(settings: Settings, job_id: str, data: Path, surroundings: Mapping[str, str]) -> bool:
    """Move an ended Redis's data here. `surroundings`: settings of its workers. False: it could not be kept."""
    target = _folder(settings) / job_id
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(mode=0o700)
        shutil.move(data, target / "redis")
        (target / _SURROUNDINGS).write_text(json.dumps(dict(surroundings)))
    except OSError:
        return False
    _forget_older_than(settings.retention_s, _folder(settings))
    return True


def is_kept(settings: Settings, name: str) -> bool:
    return (_folder(settings) / name).is_dir()


def surroundings_of(settings: Settings, job_id: str) -> dict[str, str]:
    """Raises: UnknownJob: no such job was kept; says which were."""
    place = _folder(settings) / job_id
    there = sorted(path.name for path in _folder(settings).glob("*"))
    if job_id not in there:
        raise UnknownJob(
            f"no interrupted run of {job_id} is kept here (there are: {', '.join(there) or 'none'})"
        )
    try:
        kept: dict[str, str] = json.loads((place / _SURROUNDINGS).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"what was kept of {job_id} cannot be read: remove {place}") from error
    return kept


def restore(settings: Settings, job_id: str, folder: Path) -> None:
    """A copy: whatever happens to this run, the next one can begin at the same place."""
    shutil.copytree(_folder(settings) / job_id / "redis", folder / "redis")


def forget(settings: Settings, job_id: str) -> None:
    shutil.rmtree(_folder(settings) / job_id, ignore_errors=True)


def _forget_older_than(seconds: float, folder: Path) -> None:
    for place in folder.glob("*"):
        with suppress(OSError):
            if place.stat().st_mtime < time.time() - seconds:
                shutil.rmtree(place, ignore_errors=True)
