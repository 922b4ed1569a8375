"""A system for commands that run several jobs: the broker, or a private system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.supervisor.cli.connection import (
    collect_models,
    require_processes,
    with_this_user,
)
from handoff_queue.supervisor.cli.display.terminal import print_progress
from handoff_queue.supervisor.cli.errors import end_like_ctrl_c
from handoff_queue.supervisor.cli.request_options import check_model
from handoff_queue.supervisor.evaluation.answer_grader import GRADER, AnswerGrader
from handoff_queue.supervisor.lifecycle.routing import choose_default_specialist

if TYPE_CHECKING:
    from handoff_queue.shared.store.presence import ServedSpecialist
    from handoff_queue.supervisor.client.client import Client


@contextmanager
def whole_system(
    settings: Settings, name: str, models: tuple[str | None, ...]
) -> Iterator[tuple[Client, Callable[[], None]]]:
    """Yield a client, and a check to call while waiting.

    Ctrl-C keeps the work of a private system under this name. The next run with this name
    continues the work.

    Raises:
        UserError: no process does the work, or no worker has one of these models.
        StoreUnavailable: Redis is away.
    """
    from handoff_queue.supervisor.cli import interrupted_runs
    from handoff_queue.supervisor.cli.embedded_system import EmbeddedSystem
    from handoff_queue.supervisor.client import client

    end_like_ctrl_c()
    if settings.redis_url is not None:
        jobs = with_this_user(client.connect(settings=settings))
        for model in models:
            require_processes(jobs, model)
        yield jobs, lambda: None
        return
    for model in models:
        check_model(model, settings)
    if len({*models}) == 1 and models[0] is not None:
        settings = settings.model_copy(update={"job_model": models[0]})
    interrupted = None
    if interrupted_runs.is_kept(settings, name):
        interrupted = name
    system = EmbeddedSystem(settings, interrupted=interrupted)
    with system:
        try:
            jobs = with_this_user(client.connect(system.url, system.build_client_settings()))
            print_progress(
                "starting a private Redis, a supervisor and workers (HANDOFF_REDIS_URL is not set)"
            )
            system.wait_until_ready(jobs)
            yield jobs, system.check
        except KeyboardInterrupt:
            system.keep_as(name)
            raise


def create_grader(jobs: Client, settings: Settings, model: str | None) -> AnswerGrader:
    """Return the grader: the specialist `reviewer` if a worker serves it, or else an all-rounder.

    Args:
        model: the model that the user chose. None: the model of the settings, unless the workers
            have only the offline model.
    """
    served = jobs.store.presence.load_served_specialists()
    if not model:
        model = _get_default_model(served, settings)
    if GRADER in served:
        specialist = GRADER
    else:
        specialist = choose_default_specialist(served)
    return AnswerGrader(specialist, model)


def _get_default_model(served: Mapping[str, ServedSpecialist], settings: Settings) -> str | None:
    if collect_models(served) == {OFFLINE_MODEL}:
        return None
    return settings.review_model or settings.supervisor_model


def is_free(jobs: Client, models: tuple[str | None, ...], grader: AnswerGrader | None) -> bool:
    """Return whether only the offline model answers and grades, which costs nothing.

    Args:
        models: the models of the jobs. None: the default models of the workers.
        grader: the grader, or None without a grader.
    """
    if collect_models(jobs.store.presence.load_served_specialists()) == {OFFLINE_MODEL}:
        return True
    if grader is not None:
        models = (*models, grader.model)
    return all(model == OFFLINE_MODEL for model in models)
