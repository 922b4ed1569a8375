"""A key, a secret in a document and a secret in a tool's output stay where payloads are: in no other key, no event, no log."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.ledger import keys
from supervisor.client import Request
from tests.e2e.conftest import CANARY, WEBHOOK_SECRET
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.slow

IN_DOCUMENT = "canary-in-a-document-7731"
PAYLOADS = re.compile(rf"{re.escape(keys.PREFIX)}(\{{.+\}}:(blob|t:.+|fetched)|doc:.+)")


def everything_in(fleet: Fleet) -> dict[str, str]:
    """Every key and all that it holds, as text."""
    read: dict[str, Callable[[bytes], object]] = {
        "string": fleet.redis.get,
        "hash": fleet.redis.hgetall,
        "list": lambda name: fleet.redis.lrange(name, 0, -1),
        "zset": lambda name: fleet.redis.zrange(name, 0, -1),
        "set": fleet.redis.smembers,
        "stream": fleet.redis.xrange,
    }
    return {name.decode(): str(read[fleet.redis.type(name).decode()](name)) for name in fleet.redis.scan_iter()}


def test_secrets_stay_where_they_belong(fleet: Fleet, tmp_path: Path) -> None:
    document = tmp_path / "notes.md"
    document.write_text(f"# Qdrant\n\nThe password of Qdrant is {IN_DOCUMENT}.\n")
    request = Request("What is the password of Qdrant?", documents=tmp_path, model="offline")

    job_id = fleet.jobs.submit(request)
    result = fleet.jobs.result(job_id, wait_s=60)
    fleet.ends_well(fleet.submit("secrets", turns=2, a=""))

    assert IN_DOCUMENT in result.to_json(), "the document was read: by a tool, into a result"
    held = everything_in(fleet)
    assert [name for name, text in held.items() if CANARY in text or WEBHOOK_SECRET in text] == []
    assert [name for name, text in held.items() if IN_DOCUMENT in text and not PAYLOADS.fullmatch(name)] == []
    logs = {path.name: path.read_text(errors="replace") for path in fleet.system.processes.log_of("w1").parent.glob("*.log")}
    assert len(logs) >= 6
    assert [name for name, text in logs.items() for secret in (CANARY, WEBHOOK_SECRET, IN_DOCUMENT) if secret in text] == []


def test_the_key_reaches_the_model_and_nobody_else(fleet: Fleet) -> None:
    fleet.ends_well(fleet.submit("key", a=""))

    assert CANARY in " ".join(fleet.server.headers[-1].values())
