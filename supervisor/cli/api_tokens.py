"""`handoff token`: create, list and revoke tokens of the HTTP API."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from handoff_queue.shared.text.times import DurationRange
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    format_clock,
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.shared.types.api_tokens import ApiToken


class TokenAction(StrEnum):
    """Actions of `handoff token`."""

    LIST = "list"
    CREATE = "create"
    REVOKE = "revoke"


def token(
    action: Annotated[
        TokenAction, typer.Argument(metavar="ACTION", help="list, create or revoke.")
    ] = TokenAction.LIST,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The name of a new token, or the ID of a token to revoke."
        ),
    ] = None,
    access: Annotated[
        AccessLevel | None,
        typer.Option(
            metavar="LEVEL",
            help="read, submit, operate or admin. Each includes the levels before it.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The only tenant that the token sees. Default: every tenant."
        ),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            parser=DurationRange(1, MAX_SECONDS),
            help="The token ends after this time: 12h, 30d. Default: it does not end.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Create, list or revoke tokens of the HTTP API.

    The secret of a new token is printed once. The store holds only its digest.

    handoff token create billing --access submit --tenant acme --expires 30d

    handoff token revoke 5d1f0c2a9e77
    """  # fmt: skip
    if action is not TokenAction.CREATE and (access, tenant, expires) != (None, None, None):
        raise UserError("only `handoff token create` takes --access, --tenant and --expires")
    match action:
        case TokenAction.LIST:
            if subject is not None:
                raise UserError("`handoff token list` lists all tokens, and takes no NAME")
            _print_list(connect_to_broker().tokens(), as_json=as_json)
        case TokenAction.CREATE:
            if subject is None:
                raise UserError("`handoff token create` needs a NAME, such as billing")
            if access is None:
                levels = ", ".join(level.value for level in AccessLevel)
                raise UserError(f"`handoff token create` needs --access: use one of {levels}")
            _create(subject, access, tenant, expires, as_json=as_json)
        case TokenAction.REVOKE:
            if subject is None:
                raise UserError("`handoff token revoke` needs an ID (see `handoff token list`)")
            _revoke(subject, as_json=as_json)
        case _:
            assert_never(action)
    return OK


def _create(
    name: str, access: AccessLevel, tenant: str | None, expires_s: float | None, *, as_json: bool
) -> None:
    api_token, secret = connect_to_broker().create_token(name, access, tenant, expires_s)
    if as_json:
        write_as_json({**api_token.model_dump(mode="json"), "secret": secret})
    else:
        write_line(secret)
    print_message(
        f"this is the secret of token {api_token.id}: keep it now, because no command shows it"
        f" again. `handoff token revoke {api_token.id}` ends it"
    )


def _revoke(token_id: str, *, as_json: bool) -> None:
    connect_to_broker().revoke_token(token_id)
    if as_json:
        write_as_json({"revoked": token_id})
    else:
        write_line(f"token {token_id} is revoked")


def _print_list(tokens: Sequence[ApiToken], *, as_json: bool) -> None:
    if as_json:
        write_as_json([entry.model_dump(mode="json") for entry in tokens])
        return
    for entry in tokens:
        tenant = "every tenant" if entry.tenant is None else f"tenant {shorten(entry.tenant, 40)}"
        name = shorten(entry.name, 60)
        write_line(f"{entry.id}  {entry.access:7}  {tenant}  {_describe_end(entry)}  {name}")
    if not tokens:
        print_message("there are no tokens (`handoff token create NAME --access LEVEL` makes one)")


def _describe_end(entry: ApiToken) -> str:
    """Return the end of the token in words."""
    if entry.expires_at is None:
        return "no end"
    if entry.expires_at <= time.time():
        return f"expired {format_clock(entry.expires_at)}"
    return f"until {format_clock(entry.expires_at)}"
