"""Ids of jobs, steps and handoffs. All are plain strings that are safe in URLs, file names,
Redis keys and Celery task ids.
"""

from __future__ import annotations

import hmac
import os
import random
import re
import secrets
from base64 import b32encode
from hashlib import sha256
from typing import Annotated, NewType

from pydantic import StringConstraints

from handoff_queue.shared.types.names import NAME_PATTERN

JobId = NewType("JobId", str)
"""Id of a job, such as `j-k5tq2wbz7x3mhd4n`."""
StepId = NewType("StepId", str)
"""Id of a step of a plan, such as `research_qdrant`."""
HandoffId = NewType("HandoffId", str)
"""Id of an attempt at a step, such as `research_qdrant.1`."""

JOB_ID_IN_TEXT = r"j-(?:[a-z2-7]{16}|[0-9a-f]{12})"
"""Pattern of a job id in a text. The jobs of golden journals have the second form, which no new job
gets.
"""
JOB_ID_PATTERN = f"^{JOB_ID_IN_TEXT}$"
_ID_BYTES = 10
"""Random bytes of a job id: 80 bits. An id opens a job to each worker that knows it
(`docs/security-measures.md`), so no worker may guess one.
"""
HANDOFF_ID_PATTERN = r"^[a-z][a-z0-9_-]{0,47}\.[0-9]{1,4}$"

JobIdField = Annotated[JobId, StringConstraints(pattern=JOB_ID_PATTERN)]
StepIdField = Annotated[StepId, StringConstraints(pattern=NAME_PATTERN)]
HandoffIdField = Annotated[HandoffId, StringConstraints(pattern=HANDOFF_ID_PATTERN)]
NameField = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
MessageIdField = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Id of a user's message to the agents of a job."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_words = random.Random()  # noqa: S311 (no secret: see `create_word`)
"""A separate generator, so that a program that seeds `random` does not repeat these words."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_words.seed)

_COPY_NAME = re.compile(r"(.+)_[0-9]{4,}")


def create_word() -> str:
    """Return 64 random bits as hexadecimal text. The word is unique but not a secret.

    `os.urandom` would release the interpreter lock for a system call. Two processes that were
    restored from one memory image return the same words.
    """
    return f"{_words.getrandbits(64):016x}"


def create_job_id() -> JobId:
    """Return a new job id."""
    return _build_job_id(secrets.token_bytes(_ID_BYTES))


def derive_job_id(secret: bytes, tenant: str, idempotency_key: str) -> JobId:
    """Return the job id of an idempotency key. The same key gives the same id.

    Args:
        secret: the secret of the installation, see `JobIds`.
    """
    return _build_job_id(hmac.digest(secret, f"{tenant}\0{idempotency_key}".encode(), "sha256"))


def derive_child_id(parent: JobId, handoff_id: HandoffId) -> JobId:
    """Return the id of the child job of a handoff. A handoff always has the same child id, so
    its child starts once. Only a process that knows the parent can compute it.
    """
    return _build_job_id(sha256(f"{parent}/{handoff_id}".encode()).digest())


def _build_job_id(random_bytes: bytes) -> JobId:
    """Return the job id of the first bytes."""
    return JobId(f"j-{b32encode(random_bytes[:_ID_BYTES]).decode().lower()}")


def is_job_id(text: str) -> bool:
    return re.fullmatch(JOB_ID_PATTERN, text) is not None


def is_job_id_prefix(text: str) -> bool:
    """Return whether a job id can begin with this text. The `j-` that all ids share is not
    enough.
    """
    return re.fullmatch(r"j-(?:[a-z2-7]{1,16}|[0-9a-f]{1,12})", text) is not None


def build_handoff_id(step: str, attempt: int) -> HandoffId:
    """Return the id of one attempt at one step, such as `compare.2`. It is unique within its
    job.
    """
    return HandoffId(f"{step}.{attempt}")


def parse_step_id(handoff_id: str) -> StepId:
    """Return the id of the step in the id of a handoff."""
    return StepId(handoff_id.rpartition(".")[0])


def parse_attempt(handoff_id: str) -> int:
    """Return the number of the attempt in the id of a handoff."""
    return int(handoff_id.rpartition(".")[2])


def build_copy_name(step_id: str, number: int) -> str:
    """Return the name of a copy: `page_0001`.

    Args:
        number: place of the item, from 1.
    """
    return f"{step_id}_{number:04d}"


def find_step_of_copy(name: str) -> str | None:
    """Return the step whose copy may have this name, or None if no copy can have it."""
    match = _COPY_NAME.fullmatch(name)
    if match:
        return match[1]
    return None
