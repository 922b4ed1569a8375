"""What Redis gets as a script: the parts that it uses, and nothing else."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from shared.ledger.ledger import Ledger
from shared.ledger.sources import MADE_LATER, PARTS, source_of

SCRIPTS = sorted(
    path.name.removesuffix(".lua")
    for path in (files("shared.ledger") / "scripts").iterdir()
    if path.name.endswith(".lua") and path.name.removesuffix(".lua") not in (*PARTS, "dequeuing", "dequeue", "take")
)
LUAS_OWN = set("and function if in ipairs next not or pairs pcall return tonumber type unpack".split())


@pytest.mark.parametrize("name", SCRIPTS)
def test_redis_takes_every_script_and_none_knows_a_word_that_nobody_defines(ledger: Ledger, name: str) -> None:
    source = source_of(name)
    ledger.connection.redis.script_load(source)

    used = set(re.findall(r"(?<![.:\w])([a-z_]\w*)\(", re.sub(r"'[^']*'", "", source)))
    defined = set(re.findall(r"\w+", " ".join(re.findall(r"local (?:function )?([\w, ]+)", source))))
    assert used - defined - LUAS_OWN == set()


def test_a_script_brings_along_only_what_it_uses() -> None:
    assert "local function settle(" in source_of("finish")
    assert "local function settle(" not in source_of("look")


@pytest.mark.parametrize("name", sorted(MADE_LATER))
def test_what_is_made_later_is_made_once_and_inside_of_itself(name: str) -> None:
    source = source_of("commit")

    assert source.count(f"local function {name}(...)") >= 1
    assert source.index(f"{name}_made") < source.index(f"local function {name}(...)")
