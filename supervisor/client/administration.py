"""Delete jobs, pause and unpause roles, put dead letters back into their queues, and create and
revoke tokens of the HTTP API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from handoff_queue.shared.store.dead_letters import DeadLetter, handoff_in
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.word_forms import close_names, suggestion
from handoff_queue.shared.types.actors import Actor
from handoff_queue.shared.types.api_tokens import ApiRole, ApiToken
from handoff_queue.shared.types.audit import AuditAction, AuditEntry
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.shared.types.names import NAME_PATTERN, RESERVED, ROLES, ROLES_QUEUE
from handoff_queue.supervisor.client.argument_types import check_type
from handoff_queue.supervisor.client.audit import audit_change
from handoff_queue.supervisor.client.job_lookup import get_job_info

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.handoff_publishing import Dispatcher

_ALIKE = 0.9
"""Least similarity, as a ratio of difflib, of a misspelled name and a known role: one letter
more or less, or two swapped letters.
"""
MAX_REASON_CHARS = 200
"""Most characters of a reason. Each waiting handoff shows the reason in one line."""


def create_token(
    store: Store,
    name: str,
    role: ApiRole,
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
    check_type("the role", role, ApiRole)
    if tenant is not None:
        check_type("the tenant", tenant, str)
    now = store.connection.now()
    expires_at = None
    if expires_s is not None:
        expires_at = now + expires_s
    made, secret = store.api_tokens.create(name, role, tenant, expires_at)
    entry = AuditEntry(
        at=now,
        action=AuditAction.CREATE_TOKEN,
        subject=made.id,
        detail=_rights(made),
        actor=actor,
    )
    store.audit.add(entry)
    return made, secret


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


def _rights(token: ApiToken) -> str:
    """Return the name, the role and the tenant in words: `billing, submit, tenant acme`."""
    whose = "every tenant" if token.tenant is None else f"tenant {token.tenant}"
    return f"{token.name}, {token.role}, {whose}"


def delete_job(store: Store, job_id: JobId) -> None:
    """Delete a job and its child jobs, the lowest first, so that a crash leaves no orphans.

    A job that does not exist is ignored.

    Raises:
        UserError: the job or one of its child jobs has not ended. That job is not removed.
    """
    info = next(iter(store.jobs.read([job_id])), None)
    if info is None:
        return
    check_ended(info)
    for child in info.children:
        delete_job(store, child)
    store.jobs.delete(job_id)


def check_ended(info: JobInfo) -> None:
    """Raise UserError if the job has not ended, and so cannot be deleted."""
    if not info.status.has_ended:
        remedy = "cancel it first"
        if info.parent:
            remedy = f"it stops when {info.parent} stops; try again then"
        raise UserError(f"{info.job_id} has not ended yet: {remedy}")


def pause(store: Store, role: str, reason: str, actor: Actor | None = None) -> None:
    """Pause a role. The reason becomes one line of at most `MAX_REASON_CHARS` characters.

    Raises:
        UserError: see `check_pausable`.
    """
    check_pausable(store, role)
    short = " ".join(reason.split())[:MAX_REASON_CHARS]
    audit_change(
        store, actor, AuditAction.PAUSE, role, lambda: store.pauses.pause(role, short), short
    )


def check_pausable(store: Store, role: str) -> None:
    """Check that a role can be paused.

    If no process is announced (all have stopped, or Redis was full), a role may have been
    served before. Any name is accepted then, unless it looks like a misspelled known role.

    Raises:
        UserError: no worker serves or has served the role.
    """
    served = store.presence.load_served_specialists()
    known = _find_known_roles(store, served)
    is_name = re.fullmatch(NAME_PATTERN, role) is not None and role not in RESERVED
    may_be_served = not served and is_name and not close_names(role, known, alike=_ALIKE)
    if role not in known and not may_be_served:
        raise UserError(
            f"no worker serves or has served {role[:64]!r}: {suggestion(role, sorted(known))}"
        )


def unpause(store: Store, role: str, actor: Actor | None = None) -> int | None:
    """End the pause of a role. Return the number of handoffs that waited, or None if the role
    was not paused.

    Raises:
        UserError: the role is not paused, and it is not a role that `check_pausable` accepts.
    """
    if role in store.pauses.roles():
        return audit_change(
            store, actor, AuditAction.UNPAUSE, role, lambda: store.pauses.unpause(role)
        )
    released = store.pauses.unpause(role)
    if released is None and role not in _find_known_roles(
        store, store.presence.load_served_specialists()
    ):
        if paused := close_names(role, store.pauses.all()):
            raise UserError(f"{role[:64]!r} is not paused: did you mean {paused[0]}?")
        check_pausable(store, role)
    return released


def _find_known_roles(store: Store, served: Iterable[str]) -> set[str]:
    """Return the roles of the supervisor, and the specialists that have a queue or a worker."""
    known = {*ROLES, *served}
    for depth in store.health.depths():
        known.add(depth.queue)
    return known - {ROLES_QUEUE}


def put_back(store: Store, dispatcher: Dispatcher, letter: DeadLetter) -> None:
    """Repeat the message of a dead letter, and drop the letter.

    A letter that holds a job id becomes a new wake-up of the job. A letter that holds a
    handoff makes the sweeper publish the handoff again.

    Raises:
        UserError: see `Client.requeue_dead`.
    """
    handoff = handoff_in(letter.body)
    if is_job_id(letter.body):
        if get_job_info(store, JobId(letter.body)).status.has_ended:
            raise UserError(f"{letter.body} has ended: drop its dead letter")
        dispatcher.wake(JobId(letter.body))
    elif handoff is not None:
        job_id, handoff_id, _ = handoff
        store.dead_letters.publish_again(job_id, handoff_id)
    else:
        raise UserError(f"letter {letter.id} holds no handoff, so it cannot be requeued: drop it")
    store.dead_letters.drop(letter)
