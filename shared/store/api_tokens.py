"""Tokens of the HTTP API, and the number of requests of each caller in a minute.

The store holds a digest of each secret, and never the secret. All replicas of the server share the
counts of requests.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import read_entries
from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.ids import Digest
from handoff_queue.shared.types.message import Message

MAX_NAME_CHARS = 100
"""Most characters of a token's name and of its tenant. A tenant of a job has the same limit."""
_ID = re.compile(r"[0-9a-f]{12}")
_SECRET = re.compile(r"hq_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_ID_BYTES, _SECRET_BYTES = 6, 32
WINDOW_S = 60
"""Seconds of one window, in which the requests of a caller are counted. A count expires after two
windows.
"""


class StoredToken(Message):
    """A token as Redis holds it."""

    token: ApiToken
    digest: Digest
    """SHA-256 of the whole secret text."""


class ApiTokens:
    """All tokens of the HTTP API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self, name: str, access: AccessLevel, tenant: str | None, expires_at: float | None = None
    ) -> tuple[ApiToken, str]:
        """Store a new token. Return the token and its secret, which nothing can show again.

        Args:
            tenant: the only tenant that the token sees; None for every tenant.
            expires_at: Unix time in seconds by Redis's clock; None for a token without an end.

        Raises:
            UserError: the name or the tenant is not a line of text, an admin has a tenant, or the
                time is not in the future.
        """
        now = self._connection.now()
        _check_line("the token's name", name)
        if tenant is not None:
            _check_line("the tenant's name", tenant)
        if access is AccessLevel.ADMIN and tenant is not None:
            raise UserError(
                "an admin's token creates tokens for every tenant, so it has no tenant: leave the"
                " tenant out, or choose the access level operate"
            )
        if expires_at is not None and not now < expires_at < math.inf:
            raise UserError("the token would expire at once: choose a time in the future")
        token = ApiToken(
            id=secrets.token_hex(_ID_BYTES),
            name=name,
            access=access,
            tenant=tenant,
            created_at=now,
            expires_at=expires_at,
        )
        secret = f"hq_{token.id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        stored_token = StoredToken(token=token, digest=_compute_digest(secret))
        with self._connection.translate_errors():
            self._connection.redis.hset(keys.TOKENS, token.id, stored_token.to_json())
        return token, secret

    def find(self, secret: str) -> ApiToken | None:
        """Return the token with this secret, in one round trip.

        Return None if the text is malformed, or the token is unknown, revoked or expired.
        """
        match = _SECRET.fullmatch(secret)
        if match is None:
            return None
        stored_token = self._find_valid(match[1])
        if stored_token is None or not hmac.compare_digest(
            stored_token.digest, _compute_digest(secret)
        ):
            return None
        return stored_token.token

    def is_valid(self, token_id: str) -> bool:
        """Return whether there is a token with this id that has not expired."""
        return self._find_valid(token_id) is not None

    def _find_valid(self, token_id: str) -> StoredToken | None:
        """Return the token with this id. None: it is unknown, revoked or expired."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hget(keys.TOKENS, token_id)
            pipe.time()
            text, (seconds, microseconds) = pipe.execute()
        if text is None:
            return None
        try:
            stored_token = StoredToken.from_json(text)
        except MalformedMessage:  # a token of another version gives no access
            return None
        expires_at = stored_token.token.expires_at
        if expires_at is not None and expires_at <= seconds + microseconds / 1e6:
            return None
        return stored_token

    def list_all(self) -> list[ApiToken]:
        """Return all tokens, also expired tokens, in the order of their creation."""
        with self._connection.translate_errors():
            texts = self._connection.redis.hvals(keys.TOKENS)
        entries = read_entries(texts, StoredToken.from_json, keys.TOKENS)
        return sorted(
            (entry.token for entry in entries), key=lambda token: (token.created_at, token.id)
        )

    def revoke(self, token_id: str) -> bool:
        """Delete a token. Return False if there is no such token."""
        if not _ID.fullmatch(token_id):
            return False
        with self._connection.translate_errors():
            return int(self._connection.redis.hdel(keys.TOKENS, token_id)) > 0

    def has(self, token_id: str) -> bool:
        """Return whether there is a token with this id."""
        if not _ID.fullmatch(token_id):
            return False
        with self._connection.translate_errors():
            return bool(self._connection.redis.hexists(keys.TOKENS, token_id))

    def has_tokens(self) -> bool:
        """Return whether there is a token. An expired token counts until it is revoked."""
        with self._connection.translate_errors():
            return int(self._connection.redis.hlen(keys.TOKENS)) > 0


def _check_line(subject: str, text: str) -> None:
    """Raise UserError unless the text is one short line with a visible character."""
    if not text.strip():
        raise UserError(
            f"{subject} is empty: write one line of at most {MAX_NAME_CHARS} characters"
        )
    if len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise UserError(
            f"{subject} must be one line of at most {MAX_NAME_CHARS} characters, without control"
            f" characters, not {text!r:.80}"
        )


def _compute_digest(secret: str) -> str:
    """Return the SHA-256 of the secret. No cache, as `compute_digest` has, keeps the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class RequestCounts:
    """The requests of each caller in the current minute of Redis's clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, caller: str) -> tuple[int, float]:
        """Count one request. Return the requests of this minute, and the seconds until its end.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        now = self._connection.now()
        window = int(now // WINDOW_S)
        key = keys.requests(caller, window)
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=True)
            pipe.incr(key)
            pipe.expire(key, 2 * WINDOW_S)
            count, _ = pipe.execute()
        return int(count), (window + 1) * WINDOW_S - now
