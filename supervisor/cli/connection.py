"""Connect a command to the broker, and find the job that an argument names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.job_lookup import find_job

if TYPE_CHECKING:
    from handoff_queue.shared.settings.settings import Settings
    from handoff_queue.shared.types.access import Actor
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.supervisor.client.client import Client


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job id, such as j-0123456789ab, or its unique beginning.",
    ),
]


def client_of_broker() -> Client:
    """Return a client of the broker.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set.
    """
    from handoff_queue.shared.settings.settings import load_settings

    settings = load_settings()
    if settings.redis_url is None:
        raise UserError(
            "HANDOFF_REDIS_URL is not set: name the broker (`handoff up` starts one and prints it),"
            " or use `handoff run`"
        )
    return client_with(settings)


def client_and_job(job: str) -> tuple[Client, JobId]:
    """Return a client of the broker, and the id that `job` names or begins.

    Raises:
        UserError: HANDOFF_REDIS_URL is not set, or `job` does not name exactly one job.
    """
    jobs = client_of_broker()
    return jobs, find_job(jobs.store, job)


def client_with(settings: Settings) -> Client:
    """Return a client with the short timeout of a command."""
    from handoff_queue.shared.store.redis.connection import COMMAND_TIMEOUT_S
    from handoff_queue.supervisor.client import client

    return as_this_user(client.connect(settings=settings, timeout_s=COMMAND_TIMEOUT_S))


def as_this_user(jobs: Client) -> Client:
    """Return the client with the user of the operating system as its actor."""
    return jobs.acting_as(this_user("cli"))


def this_user(via: Literal["cli", "mcp"]) -> Actor:
    """Return the user of the operating system as an actor.

    The variables USER and LOGNAME do not count, because any user can set them.

    Args:
        via: the way to the queue.
    """
    import pwd
    import socket

    from handoff_queue.shared.text.unicode_text import in_whole_characters
    from handoff_queue.shared.types.access import MAX_ACTOR_CHARS, Actor

    user_id = os.getuid()
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # a container may run under an id without a name
        name = ""
    name = in_whole_characters(name)[:MAX_ACTOR_CHARS] or str(user_id)
    host = in_whole_characters(socket.gethostname())[:MAX_ACTOR_CHARS] or None
    return Actor(name=name, via=via, address=host)
