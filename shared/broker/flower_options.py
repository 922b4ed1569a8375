"""Checks of Flower's options before it starts, in place of its tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from handoff_queue.shared.settings.placeholder_passwords import check_log_ins
from handoff_queue.shared.settings.ports import MAX_PORT, build_unusable_port_error
from handoff_queue.shared.types.errors import UserError


def prepare_flower_command(module: str) -> None:
    """Prepare Flower, if this process is `celery -A MODULE flower`.

    Check its options, and have it list all queues, and check all events and replies.

    Raises:
        UserError: a variable, a log-in or the port cannot be used; names it.
    """
    if "flower" not in sys.argv:
        return
    place = sys.argv.index("flower")
    if not any(module in argument for argument in sys.argv[:place]):
        return
    # imports Flower
    from handoff_queue.shared.broker.flower import check_events, check_replies, list_all_queues

    check_flower(sys.argv[place + 1 :])
    list_all_queues()
    check_events()
    check_replies()


def check_flower(arguments: Sequence[str]) -> None:
    """Check what Flower would read: variables, arguments and its configuration file.

    Raises:
        UserError: a variable, a log-in or the port cannot be used; names it.
    """
    from flower.command import apply_options
    from tornado.options import options

    _check_variables()
    try:
        apply_options("flower", list(arguments))
    except Exception as error:
        raise UserError(f"Flower cannot use one of its options: {error}") from error
    check_log_ins(options.basic_auth or ())
    if not options.unix_socket:
        _check_port(options.address, options.port)


def _check_port(address: str, port: int) -> None:
    """Bind the sockets that Flower will bind, and close them.

    Raises:
        UserError: Flower cannot listen there.
    """
    from tornado.netutil import bind_sockets

    advice = "choose another for Flower (--port or FLOWER_PORT)"
    if not 0 <= port <= MAX_PORT:
        raise UserError(f"port {port} cannot be used: the largest is {MAX_PORT}; {advice}")
    try:
        sockets = bind_sockets(port, address=address)
    except OSError as error:
        raise build_unusable_port_error(port, error, advice) from error
    for bound in sockets:
        bound.close()


def _check_variables() -> None:
    """Raise a UserError that names the first variable that Flower cannot read."""
    from flower.command import apply_env_options, is_flower_envvar

    variables = {name: os.environ.pop(name) for name in filter(is_flower_envvar, [*os.environ])}
    try:
        for name, value in variables.items():
            os.environ[name] = value
            try:
                apply_env_options()
            except Exception:  # noqa: BLE001 - the text of the error quotes the value
                raise UserError(
                    f"Flower cannot use the value of {name}: correct or unset it"
                ) from None
    finally:
        os.environ.update(variables)
