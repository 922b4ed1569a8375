"""A system for commands that run several jobs: the broker, or a private system."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.supervisor.cli.display.terminal import note
from handoff_queue.supervisor.cli.request_options import check_model
from handoff_queue.supervisor.evaluation.answer_judge import JUDGE, AnswerJudge
from handoff_queue.supervisor.lifecycle.routing import all_rounder

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client


@contextmanager
def whole_system(
    settings: Settings, name: str, models: tuple[str | None, ...]
) -> Iterator[tuple[Client, Callable[[], None]]]:
    """Yield a client, and a check to call while waiting.

    Ctrl-C keeps the work of a private system under this name. The next run with the name continues
    it.

    Raises:
        UserError: no process does the work, or no worker has one of these models.
        StoreUnavailable: Redis is away.
    """
    from handoff_queue.supervisor.cli import interrupted_runs as kept
    from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
    from handoff_queue.supervisor.cli.fleet_state import require_somebody
    from handoff_queue.supervisor.client import client

    signal.signal(signal.SIGTERM, _like_ctrl_c)
    if settings.redis_url is not None:
        jobs = client.connect(settings=settings)
        for model in models:
            require_somebody(jobs, model)
        yield jobs, lambda: None
        return
    for model in models:
        check_model(model, settings)
    system = EmbeddedSystem(settings, interrupted=name if kept.is_kept(settings, name) else None)
    with system:
        try:
            jobs = client.connect(system.url, settings)
            note(
                "starting a private Redis, a supervisor and workers (HANDOFF_REDIS_URL is not set)"
            )
            system.wait_until_ready(jobs)
            yield jobs, system.check
        except KeyboardInterrupt:
            system.keep_as(name)
            raise


def judging_on(jobs: Client, settings: Settings, model: str | None) -> AnswerJudge:
    """Return the judge.

    Args:
        model: the model that the user chose. None: the model of the settings, unless the workers
            have only the offline model.
    """
    served = jobs.store.presence.served()
    is_offline = {name for one in served.values() for name in one.models} == {OFFLINE_MODEL}
    if is_offline:
        chosen = None
    else:
        chosen = settings.reviewer_model or settings.supervisor_model
    return AnswerJudge(JUDGE if JUDGE in served else all_rounder(served), model or chosen)


def is_free(jobs: Client, models: tuple[str | None, ...]) -> bool:
    """Return whether only the offline model can answer, which costs nothing."""
    there: set[str] = set()
    for one in jobs.store.presence.served().values():
        for name in one.models:
            there.add(name)
    return there == {OFFLINE_MODEL} or all(model == OFFLINE_MODEL for model in models)


def _like_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt
