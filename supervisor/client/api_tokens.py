"""Create and revoke tokens of the HTTP API."""

from __future__ import annotations

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
from handoff_queue.shared.types.audit import Actor, AuditAction, AuditEntry
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.argument_types import check_type
from handoff_queue.supervisor.client.audit import audit_change


def create_token(
    store: Store,
    name: str,
    access: AccessLevel,
    tenant: str | None,
    expires_s: float | None,
    actor: Actor | None,
) -> tuple[ApiToken, str]:
    """Create a token, and write its entry once the id is known. If the process ends before that,
    the secret is lost with it.

    Raises:
        UserError: see `Client.create_token`.
    """
    check_type("the token's name", name, str)
    check_type("the access level", access, AccessLevel)
    if tenant is not None:
        check_type("the tenant", tenant, str)
    now = store.connection.now()
    expires_at = None
    if expires_s is not None:
        expires_at = now + expires_s
    token, secret = store.api_tokens.create(name, access, tenant, expires_at)
    entry = AuditEntry(
        at=now,
        action=AuditAction.CREATE_TOKEN,
        subject=token.id,
        detail=_describe_rights(token),
        actor=actor,
    )
    store.audit.add(entry)
    return token, secret


def revoke_token(store: Store, token_id: str, actor: Actor | None) -> None:
    """Revoke a token.

    Raises:
        UserError: there is no such token.
    """
    if not store.api_tokens.has(token_id):
        raise UserError(f"there is no token {token_id[:40]!r}", command="handoff token list")
    audit_change(
        store,
        actor,
        AuditAction.REVOKE_TOKEN,
        token_id,
        lambda: store.api_tokens.revoke(token_id),
    )


def _describe_rights(token: ApiToken) -> str:
    """Return the name, the access level and the tenant in words: `billing, submit, tenant acme`."""
    whose = "every tenant" if token.tenant is None else f"tenant {token.tenant}"
    return f"{token.name}, {token.access}, {whose}"
