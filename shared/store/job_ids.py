"""Ids of jobs that follow from idempotency keys.

A worker that knows the id of a job can read parts of the job, so no worker may guess an id. An
idempotency key can be guessed. So the id follows from the key and a secret of the installation,
which no worker may read.
"""

from __future__ import annotations

import secrets
import time

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.ids import JobId, derive_job_id

SECRET_BYTES = 32
GOOD_FOR_S = 1.0
"""Seconds for which a process uses the secret that it has read. Redis may lose its data, and
another process then stores another secret.
"""


class JobIds:
    """The ids of jobs with an idempotency key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._secret = b""
        self._read_at = -GOOD_FOR_S

    def derive(self, tenant: str, idempotency_key: str) -> JobId:
        """Return the job id of an idempotency key. The same key of a tenant gives the same id.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        now = time.monotonic()
        if now >= self._read_at + GOOD_FOR_S:
            self._secret, self._read_at = self._read_secret(), now
        return derive_job_id(self._secret, tenant, idempotency_key)

    def _read_secret(self) -> bytes:
        """Return the secret of the installation. The first reader stores it."""
        redis = self._connection.redis
        with self._connection.translate_errors():
            while True:
                secret: bytes | None = redis.get(keys.ID_SECRET)
                if secret:
                    return secret
                redis.set(keys.ID_SECRET, secrets.token_hex(SECRET_BYTES), nx=True)
