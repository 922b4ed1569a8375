"""Redis gets each script with the shared parts that it uses, and no others."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from handoff_queue.shared.store.redis.script import PARTS, SCRIPTS_OF_WORKERS, build_source
from handoff_queue.shared.store.store import Store

SCRIPTS = sorted(
    path.name.removesuffix(".lua")
    for path in (files("handoff_queue.shared.store") / "lua").iterdir()
    if path.name.endswith(".lua") and path.name.removesuffix(".lua") not in PARTS
)
CALLED_SCRIPT = re.compile(r"(?:run_script|_run_until_answered)\(\s*\"(\w+)\"")
MAX_LOCALS = 170
"""Lua allows 200 in a function. A prefix of keys takes two."""
LUAS_OWN = set(
    "and error function if in ipairs next not or pairs pcall return tonumber type unpack".split()
)


def without_texts(source: str) -> str:
    return re.sub(r"'[^']*'", "''", source)


def defined_in(source: str) -> list[str]:
    """Return the names that the source defines at the top level, in order."""
    return re.findall(
        r"\w+", " ".join(re.findall(r"^local (?:function )?([\w, ]+)", source, re.MULTILINE))
    )


def top_level_of(source: str) -> str:
    """Return the source without the blocks of the parts."""
    return re.sub(r"^do\n.*?^end;\n", "", source, flags=re.MULTILINE | re.DOTALL)


SHARED_NAMES = {
    name
    for part in PARTS
    for name in defined_in(
        (files("handoff_queue.shared.store") / "lua" / f"{part}.lua").read_text()
    )
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_redis_loads_every_script_and_every_called_function_is_defined(
    store: Store, name: str
) -> None:
    source = build_source(name)
    store.connection.redis.script_load(source)

    called = set(re.findall(r"(?<![.:\w])([a-z_]\w*)\(", without_texts(source)))
    defined = set(
        re.findall(r"\w+", " ".join(re.findall(r"local (?:function )?([\w, ]+)", source)))
    )
    assert called - defined - LUAS_OWN == set()


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_part_of_a_script_is_defined_once_before_its_use(name: str) -> None:
    source = without_texts(build_source(name))
    known, missing = set[str](), set[str]()
    for piece in re.split(r"^(?=local )", source, flags=re.MULTILINE):
        known |= set(defined_in(piece))
        locals_defined = set(re.findall(r"^ +local (?:function )?(\w+)", piece, re.MULTILINE))
        missing |= (
            (SHARED_NAMES & set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", piece)))
            - known
            - locals_defined
        )

    assert missing == set()
    assert [
        name
        for name in defined_in(source)
        if defined_in(source).count(name) > 1 and name in SHARED_NAMES
    ] == []


def test_a_script_includes_only_the_parts_it_uses() -> None:
    assert "function settle(" in build_source("finish")
    assert "function settle(" not in build_source("lease_job_evaluation")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_room_below_the_200_local_variables_of_lua(name: str) -> None:
    assert len(defined_in(top_level_of(build_source(name)))) <= MAX_LOCALS


def test_names_that_only_one_part_uses_are_in_a_block() -> None:
    source = build_source("commit")

    assert "MAX_VERIFIED" in source
    assert "MAX_VERIFIED" not in top_level_of(source)


def test_workers_may_run_each_script_of_a_claim() -> None:
    """With Redis users, any other script refuses a worker in its first line."""
    called: set[str] = set()
    for module in ("claim.py", "claim_requests.py"):
        source = (files("handoff_queue.shared.store") / module).read_text()
        called |= set(CALLED_SCRIPT.findall(source))

    assert {"claim", "turn", "finish", "renew_lease"} <= called, "the search finds the calls"
    assert called - SCRIPTS_OF_WORKERS == set()
