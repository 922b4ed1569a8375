"""A worker that calls a script with a long JSON argument keeps Redis for a short time only. The
call needs no memory beyond `maxmemory`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import redis

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import load_script
from handoff_queue.shared.store.redis.script import SCRIPTS_OF_WORKERS, list_script_names
from tests.hostile.redis_commands import OTHER_JOB
from tests.hostile.redis_with_users import Server

pytestmark = pytest.mark.slow

ARGUMENTS_OF_A_CALL = 20
LONG_JSON = b"[" + b"[]," * 100_000 + b"[]]"
"""An argument of 300 kB. The decoded value needs 10 MB."""
BOUNDED = re.compile(
    r"pcall\(cjson\.decode, (?:short\(\w+\)|stored)\)|short\(\w+\) and cjson\.decode"
)
"""A decoded text that `short` has checked."""
OF_CLIENTS = {
    "  return cjson.decode(redis.call('HGET', job, 'message:' .. integer(n)))",
    "    local batch = cjson.decode(decided)",
    "    local event = cjson.decode(batch[1 + place])",
}
"""Lines that decode fields of the hash of a job, to which no worker may write."""
FROM_JSON = re.compile(r"function from_json\(.*?^end$", re.MULTILINE | re.DOTALL)
"""The function that checks the length of a text, and decodes it."""


def call(connection: redis.Redis, name: str, arguments: Sequence[str | bytes]) -> str:
    """Call a script, and return the error, or ''."""
    job = f"{keys.PREFIX}{{{OTHER_JOB}}}"
    try:
        connection.evalsha(load_script(name).digest, 3, job, job, job, *arguments)
    except redis.ResponseError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted({*list_script_names()} - SCRIPTS_OF_WORKERS))
def test_a_script_that_no_worker_needs_refuses_a_worker_in_its_first_line(
    server: Server, name: str
) -> None:
    with server.connected_as("worker-analyst") as attacker:
        error = call(attacker, name, ["{}"] * ARGUMENTS_OF_A_CALL)

    assert re.search(r"permission.* on @user_script:1\b", error), error


@pytest.mark.parametrize("name", sorted(SCRIPTS_OF_WORKERS))
def test_a_script_of_workers_decodes_short_texts_only(name: str) -> None:
    source = FROM_JSON.sub("", load_script(name).text)
    lines = [line for line in source.splitlines() if "cjson.decode" in line]

    assert [line for line in lines if not BOUNDED.search(line) and line not in OF_CLIENTS] == []


@pytest.mark.parametrize(
    ("name", "place"), [("claim", 8), ("record_provider_answer", 2), ("turn", 6), ("turn", 7)]
)
def test_a_worker_cannot_make_a_script_decode_a_long_argument(
    server: Server, name: str, place: int
) -> None:
    arguments: list[str | bytes] = ["1"] * ARGUMENTS_OF_A_CALL
    arguments[place - 1] = LONG_JSON
    with server.connected_as("worker-analyst") as attacker:
        assert "has more than 131,072 bytes" in call(attacker, name, arguments)
