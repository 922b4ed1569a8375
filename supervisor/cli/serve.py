"""`handoff serve`: the HTTP API and the console."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.settings.placeholder_passwords import load_process_settings
from handoff_queue.shared.settings.ports import build_unusable_port_error
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import print_message, print_progress
from handoff_queue.supervisor.cli.errors import OK

DEFAULT_PORT = 8321
MAX_WAITING = 2_048
"""Most connections that wait until the server accepts them."""


def serve(
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address on which the server listens.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65_535, help="The port.")
    ] = DEFAULT_PORT,
    wait_for_token: Annotated[
        bool,
        typer.Option(
            "--wait-for-token",
            help="Start on any address without a token, and refuse every request until there is"
            " one.",
        ),
    ] = False,
) -> int:
    """Serve the HTTP API and the console.

    The console is at /, and /v1/reference describes the API. Without any token (`handoff
    token`), the server takes only requests of this machine, and each may do everything. /healthz
    answers without a token. Ctrl-C stops the server.

      handoff serve --port 8321
    """
    check_extra("serve", "handoff serve", "serve")
    from handoff_queue.shared.observability.logs import configure_logging
    from handoff_queue.supervisor.client.async_client import AsyncClient
    from handoff_queue.supervisor.serve.application import make_application
    from handoff_queue.supervisor.serve.proxy_authentication import check_proxy
    from handoff_queue.supervisor.serve.server import serve_until_stopped

    load_process_settings()  # refuses the placeholder of a password
    jobs = connect_to_broker()
    check_proxy(jobs.settings)
    has_tokens = jobs.store.api_tokens.has_tokens()
    jobs.store.health.check_no_cluster()
    listening, is_loopback = listen(host, port)
    with listening:
        is_open = is_loopback and not wait_for_token
        header = jobs.settings.serve_user_header
        if header is not None:
            proxies = ", ".join(jobs.settings.serve_proxies)
            print_message(f"the header {header} names the user if the proxy sends it: {proxies}")
        elif not has_tokens:
            _print_access(host, is_open=is_open, may_wait=wait_for_token)
        shown_host = f"[{host}]" if ":" in host else host
        url = f"http://{shown_host}:{port}"
        configure_logging(jobs.settings)
        application = make_application(AsyncClient(jobs), jobs.settings, is_loopback=is_open)
        serve_until_stopped(
            application,
            listening,
            lambda: print_progress(f"{url}/ (the API: {url}/v1/reference)"),
        )
    return OK


def _print_access(host: str, *, is_open: bool, may_wait: bool) -> None:
    """Say who has access to a server without tokens.

    Raises:
        UserError: the server would listen beyond loopback, and may not wait for a token.
    """
    if is_open:
        print_message(
            "there is no token: every program of this machine may do everything"
            " (`handoff token create NAME` makes a token)"
        )
    elif may_wait:
        print_message(
            "there is no token: every request is refused until"
            " `handoff token create NAME --access admin`"
        )
    else:
        raise UserError(
            f"without a token, the server listens on loopback only, not on {host}: make a token"
            " first (`handoff token create NAME --access admin`), or start with --wait-for-token"
        )


def listen(host: str, port: int) -> tuple[socket.socket, bool]:
    """Return a socket that listens on an address, and whether the address is of loopback.

    Raises:
        UserError: the host has no address of this machine, or the port cannot be used.
    """
    import ipaddress

    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--host {host[:80]!r} is not an address of this machine ({error}): use 127.0.0.1, or"
            " 0.0.0.0 for all networks"
        ) from error
    family, kind, protocol, _, address = addresses[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(MAX_WAITING)
    except OSError as error:
        listening.close()
        raise build_unusable_port_error(
            port, error, f"choose another with --port, or another --host than {host}"
        ) from error
    return listening, ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
