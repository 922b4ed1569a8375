"""Names of things. All are plain strings that survive a URL, a file name, a Redis key and a
Celery task id.
"""

from __future__ import annotations

import os
import random
import re
import secrets
from typing import Annotated, NewType

from pydantic import StringConstraints

from handoff_queue.shared.types.message import digest_of

JobId = NewType("JobId", str)
StepId = NewType("StepId", str)
HandoffId = NewType("HandoffId", str)

JOB_ID_PATTERN = r"^j-[0-9a-f]{12}$"
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,47}$"
HANDOFF_ID_PATTERN = r"^[a-z][a-z0-9_-]{0,47}\.[0-9]{1,4}$"

JobIdField = Annotated[JobId, StringConstraints(pattern=JOB_ID_PATTERN)]
StepIdField = Annotated[StepId, StringConstraints(pattern=NAME_PATTERN)]
HandoffIdField = Annotated[HandoffId, StringConstraints(pattern=HANDOFF_ID_PATTERN)]
NameField = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_words = random.Random()  # noqa: S311 (no secret: see `new_word`)
"""Seeded by the system, and nobody else's: whoever seeds `random` itself would repeat it."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_words.seed)


def new_word() -> str:
    """64 random bits, to be told apart from all others and not to be kept from anyone; of a
    process that was restored twice from one image, the same twice. Those of the system cost a
    system call, for which a thread gives up the interpreter lock, and waits to have it back.
    """
    return f"{_words.getrandbits(64):016x}"


def new_job_id() -> JobId:
    """48 random bits: at a million jobs, one chance in 560 of a clash, which `submit` refuses."""
    return JobId(f"j-{secrets.token_hex(6)}")


def job_id_for(tenant: str, idempotency_key: str) -> JobId:
    """The same key always gives the same job."""
    return JobId("j-" + digest_of(f"{tenant}\0{idempotency_key}")[:12])


def child_id_for(parent: JobId, handoff_id: HandoffId) -> JobId:
    """The job that does a handoff of another one: always the same, so that beginning it twice
    begins it once.
    """
    return JobId("j-" + digest_of(f"{parent}/{handoff_id}")[:12])


def is_job_id(text: str) -> bool:
    return re.fullmatch(JOB_ID_PATTERN, text) is not None


def is_job_id_prefix(text: str) -> bool:
    """Return whether a job id can begin with this text. The `j-` that all ids share is not enough."""
    return re.fullmatch(r"j-[0-9a-f]{1,12}", text) is not None


def handoff_id(step: str, attempt: int) -> HandoffId:
    """One attempt at one step, unique within its job: `compare.2`."""
    return HandoffId(f"{step}.{attempt}")
