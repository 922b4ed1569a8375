"""Connect a command to the broker, and find the job that an argument names. Check the processes of
the broker by their announcements in the store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.job_lookup import find_job

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.store.presence import ServedSpecialist
    from handoff_queue.shared.types.audit import Actor
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.supervisor.client.client import Client

_JOB_ARGUMENT = typer.Argument(
    metavar="JOB", help="A job id, such as j-k5tq2wbz7x3mhd4n, or its unique beginning."
)
Job = Annotated[str, _JOB_ARGUMENT]
OptionalJob = Annotated[str | None, _JOB_ARGUMENT]


def connect_to_broker(or_else: str = "") -> Client:
    """Return a client of the broker.

    Args:
        or_else: end of the error if no broker is set: what the user can do without a broker.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set.
    """
    from handoff_queue.shared.settings.settings import load_settings

    settings = load_settings()
    if settings.redis_url is None:
        raise UserError(
            "HANDOFF_REDIS_URL is not set: name the broker (`handoff up` starts one and prints it)"
            f"{or_else}"
        )
    return create_client(settings)


def connect_and_find_job(job: str) -> tuple[Client, JobId]:
    """Return a client of the broker, and the id that `job` names or begins.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set, or `job` does not name exactly one job.
    """
    jobs = connect_to_broker()
    return jobs, find_job(jobs.store, job)


def create_client(settings: Settings) -> Client:
    """Return a client with the short timeout of a command."""
    from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
    from handoff_queue.supervisor.client import client

    return with_this_user(client.connect(settings=settings, timeout_s=COMMAND_TIMEOUT_S))


def with_this_user(jobs: Client) -> Client:
    """Return the client with the user of the operating system as its actor."""
    return jobs.acting_as(get_user("cli"))


def get_user(via: Literal["cli", "mcp"]) -> Actor:
    """Return the user of the operating system as an actor.

    The variables USER and LOGNAME do not count, because any user can set them.

    Args:
        via: the way to the queue.
    """
    import pwd
    import socket

    from handoff_queue.shared.text.unicode_text import replace_lone_surrogates
    from handoff_queue.shared.types.audit import MAX_ACTOR_CHARS, Actor

    user_id = os.getuid()
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # a container may run under an id without a name
        name = ""
    name = replace_lone_surrogates(name)[:MAX_ACTOR_CHARS] or str(user_id)
    host = replace_lone_surrogates(socket.gethostname())[:MAX_ACTOR_CHARS] or None
    return Actor(name=name, via=via, address=host)


START_WORKERS = "start some: `handoff worker --all`, or the whole system: `handoff up`"
NO_WORKERS = f"no worker serves any specialist on this broker: {START_WORKERS}"
START_A_SUPERVISOR = "start one: `handoff supervisor`, or the whole system: `handoff up`"


def collect_models(served: Mapping[str, ServedSpecialist]) -> set[str]:
    """Return the names of the models that the workers of these specialists use."""
    models: set[str] = set()
    for specialist in served.values():
        models.update(specialist.models)
    return models


def require_keys(jobs: Client) -> None:
    """Check that the processes of the broker will not refuse the messages of this command.

    Raises:
        UserError: they check signatures, and this shell has no key.
    """
    if jobs.store.presence.needs_keys():
        raise UserError(
            "the processes of this Redis refuse messages without a signature, and this shell has"
            " no key: set HANDOFF_KEYS and HANDOFF_SIGNING_KEY (`handoff up` prints both)"
        )


def require_processes(jobs: Client, model: str | None = None) -> None:
    """Check that the broker has a supervisor and a worker, before a command waits for an
    answer.

    Raises:
        UserError: no worker, no supervisor, or no worker has the model. The message names the
            command that starts it. Or see `require_keys`.
        StoreUnavailable: no process is announced, because Redis takes no writes.
    """
    from handoff_queue.shared.settings.settings import OFFLINE_MODEL

    require_keys(jobs)
    served = jobs.store.presence.load_served_specialists()
    has_supervisor = SUPERVISOR_QUEUE in jobs.store.presence.read_presence().queues
    if not served or not has_supervisor:
        refusal = jobs.store.health.find_refusal()
        if refusal:
            raise StoreUnavailable(refusal)
    if not served:
        raise UserError(NO_WORKERS)
    if model not in (None, OFFLINE_MODEL) and collect_models(served) == {OFFLINE_MODEL}:
        raise UserError(
            f"--model {model} is not available: the workers of this broker have only the offline"
            " model; set ANTHROPIC_API_KEY there"
        )
    if not has_supervisor:
        raise UserError(f"no supervisor takes jobs from this broker: {START_A_SUPERVISOR}")
