"""Journals that this version wrote: every later version must read them, and find the same job
in them. Never change one; add another.
"""

from __future__ import annotations

import json
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import Event, Recorded, parse_event
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.handoffs import JOB

DIGESTS = {
    "v1-asked.json": "1f64cdaec3934aa0612b71056b54e587caabe914a75fa79e6674b6ac61c49632",
    "v1-asked.jsonl": "0fa442c5db118cc59fddb2eb296570cd7927399795908228c676512b402d1a1b",
    "v1-everything.json": "9e73f26b0d79885a053f99c799d0ccb6d0fab7411785c133a58ea0056ff627ab",
    "v1-everything.jsonl": "ea60cf8a481c37f59906aaaefd28f20ae7b4281bb4ff8aef7d443647b21efc34",
    "v1-random-11.json": "9b7451f20d986cb82f49cfb9eecd19db7014ea03198b196c023d6d27e4663f4b",
    "v1-random-11.jsonl": "0ee138bd998ae6136e387e083818d826a6bf226f20f4f9bbf2164378dc5a9267",
    "v1-random-3.json": "d9146aa3e0469583ef166d0096f684dc03ac3bb16570b11494697b4f451ca255",
    "v1-random-3.jsonl": "e3c4a090343627d21cee4c89a03f6e0f326f51641ec939e888955b0a967d2a17",
    "v2-approved.json": "797fb044f16471e06ac3402abfe888e78692829e631f22340665c6e88996934f",
    "v2-approved.jsonl": "3ca883f34c7a179bc7c37584653fa79f2cc11bab556816b63f0ed9dacf9c2667",
    "v2-routed.json": "013aeea81325bef6cda9d42cb911a726b2a4e4a4b07ff8d79d23a8dc86438133",
    "v2-routed.jsonl": "0d518639b0b5105bf7cbb56c5bda2add3c027b04e78cd6d4b135671c5ee7074a",
    "v2-pipeline.json": "7d157134c58b251080fbe94a0f639037b7f5b0505dbc78e3ebceae7210282b53",
    "v2-pipeline.jsonl": "7e81afe394ea56dcbb22e507d58699ae71171f7ec307c072d4600e3e8b6fe257",
    "v2-second-chances.json": "4c609f742d2b951519e145c0e355aaca7d4a949ee4308c1533323dd6b0f9124b",
    "v2-second-chances.jsonl": "5406b5d3d5c2cb3a3d6309e59c4bbd267121824e80995a2ec7a4b45ed94d8ce1",
    "v2-gates.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-gates.jsonl": "6fc13dc8f7ecb1b9a2ff57fa464a3c5cbd8493dff09af16bcc1d78523cd6da59",
    "v2-conflicts.json": "495ddc926ece98d67756cb51b5eb02538ff966725ba902ac549833a8d85a5a9b",
    "v2-conflicts.jsonl": "0eac29d0fcb2de8cde4124e39e7a0497103610380681086fee61c94ca3b84f3d",
    "v2-rubric.json": "db98b2185d8365c34d4df0a709a4c4e02482ad7e444d8d974b816599e505917c",
    "v2-rubric.jsonl": "23447e45d91399aaeab4d0cf2f6bef798f78fa5871782b8716ba117ac9985931",
    "v2-joins.json": "1233b6e7f674cef9693107fd2a244ab242514f2f47b64a865adf1dc0409a6149",
    "v2-joins.jsonl": "779716e8f5c33a5969a0d1fb7f98463e6a0f5119159023f34f11b1c2e26147ff",
    "v2-follows.json": "5ee36aee0940b65e61b5c315e89cb99c95831bbba161271333435c3118793a37",
    "v2-follows.jsonl": "42ab383efc8f7e671d5b12812456e48fea70c961c0decefafab3e4ab6a96ccea",
    "v3-adaptive.json": "ca9363abe2e230b27466121a560c6e176412cea093c1eed97f1bd2f028eca0ac",
    "v3-adaptive.jsonl": "32283f3fda7d9568c807988e5922988ea1825ee030fa5f3d1969bc9dce959257",
    "v2-facts.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-facts.jsonl": "9ee33d4c4cc80c1b889b4da8f8227502977da90b965b2873928c8ac90f1cedfe",
    "v2-quoted.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "v2-quoted.jsonl": "9e78aea2302ab443b5541a44a53576e44174aef2e48daebfba7e6b16d29d9afd",
    "v3-quarrel.json": "a5bb731b4086699ae7d9af0cf1eb0ea68a6f0532abb5211d710b548febd90822",
    "v3-quarrel.jsonl": "f2e5e1ba236317ee6741e70ea736be8fb6ca592244664bd8dee3f51f6c244fa7",
    "v2-child.json": "b71378362cc0d0e0cfb48f1db6746c65251cad666a91e302421db5581af8a4a2",
    "v2-child.jsonl": "989265963f2b8410f1bb6edf8115aed6bc56824a6b6708698f7e2e434c0e02ec",
    "v2-fact-gate.json": "a5bd4d5966373438e200ded188c1e7de2dac699772d42079730f3e42625a2704",
    "v2-fact-gate.jsonl": "005a4237525d3690a72d2df48a2fdb656b7b50fd7d7db1f4c570c03e4bea4a6b",
    "v4-nothing-new.json": "c6993d63382db1cd4904094d3e0942358c9873e63c66e52d5bf2f7df2d6952c2",
    "v4-nothing-new.jsonl": "bcd3d1ab6696c0e6fb39f86d81d636a43e212a88714aa4a1388d70fe3b4884d9",
    "v5-finished.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v5-finished.jsonl": "229392b6511927aae508c50b701b4e1d0406bd105a6aff4e7e03ab0e2a81393e",
    "v5-helped.json": "3ae0923f9dd1769154647d1332666a8a1e457121216bf1d6954de363897aef1c",
    "v5-helped.jsonl": "b4de3f1f4b4ad2b8e06d90c5eae87d98a8c3f54c56ff27b5d36ba5647041d69e",
    "v6-own-plan.json": "1bf7706e78070cdf08b8cc38ee94a38f7868180d5552f70cf01cc27d2121e2e2",
    "v6-own-plan.jsonl": "cd6e72cbcfc8009c9706b129d0ff11573308f2253261b13d165ae29ea353904a",
    "v7-batch.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v7-batch.jsonl": "6a5b56c5176a95013c538dedc3e88fa53b3231832e595e479ac5312664a93d5c",
    "v8-taken-up.json": "2d36fc78ff663e4af4b78d32e16326faa3b0e392318930d75babb39903edffb0",
    "v8-taken-up.jsonl": "7167f4ad37fa61cb38eba32f33e4933b4f449123854e6932932e1b39c4d2d37a",
    "v9-effects.json": "c98cf404eabf635728a5b4e8ccad332109ba41f0e8a5e3a242434183c3b241d9",
    "v9-effects.jsonl": "2c6db23dbb667d012397f042a74219108bcedbc1b751f7e8024fbafb302e69bf",
    "v9-conditions.json": "21c3f71be8a61c421b3c929e77924787f25e3debeff34ac7128c037788d52c30",
    "v9-conditions.jsonl": "bf76fafedb545c93ecd67fcd85661f0ee4b119eeeb14600255841cb6f735c4fd",
    "v9-end-task.json": "36060f585803241ecd909f8580f52fc79c17400e98f6c30b190e95d4f98300d0",
    "v9-end-task.jsonl": "3a29c940ef1ef04c13b12ea1b6fdb727dd66e734dc3631165faa18de23802a6e",
}
JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.jsonl"))


def read(path: Path) -> list[Recorded]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Recorded(line["version"], line["at"], parse_event(json.dumps(line["event"])))
        for line in lines
    ]


def shown(ref: BlobRef | None) -> str | None:
    return ref.digest if ref else None


def facts(state: JobState) -> dict[str, Any]:
    """Return the facts of a job in names that do not depend on the fields of the state."""
    return {
        "version": state.version,
        "status": state.status,
        "phase": state.phase,
        "steps": {
            name: {
                "status": step.status,
                "attempt": step.attempt,
                "result": step.result_status,
                "why": shown(step.trouble),
            }
            for name, step in state.steps.items()
        },
        "open": sorted(state.open),
        "rounds": len(state.rounds),
        "handoffs": state.handoffs,
        "tokens": state.usage.total_tokens,
        "turns": state.turns,
        "webhook": state.webhook_delivered,
    }


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_a_journal_of_an_older_version_has_the_same_facts(path: Path) -> None:
    state = fold(JobId(JOB), None, read(path))

    assert state is not None
    assert facts(state) == json.loads(path.with_suffix(".json").read_text())


def test_no_golden_journal_and_no_fact_changes() -> None:
    """Add another one, and its line here."""
    assert {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in (Path(__file__).parent / "journals").iterdir()
    } == DIGESTS


def test_every_kind_of_event_is_in_some_journal() -> None:
    assert {type(recorded.event) for path in JOURNALS for recorded in read(path)} == set(
        get_args(Event)
    )


# A record of a newer version is refused as a whole, never read in part.

EVENTS = {
    type(one.event): json.loads(one.event.to_json()) for path in JOURNALS for one in read(path)
}


def enums_in(value: Any) -> list[str]:
    """Fields of an event that hold one of a closed set of words."""
    return [name for name, item in value if isinstance(item, StrEnum)]


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_a_field_that_this_version_does_not_know_is_not_passed_over(kind: Any) -> None:
    with pytest.raises(MalformedMessage):
        parse_event(json.dumps(EVENTS[kind] | {"of_the_future": None}))


def test_a_kind_of_event_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        parse_event('{"type": "of_the_future"}')


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_unknown_word_is_refused(kind: Any) -> None:
    for name in enums_in(parse_event(json.dumps(EVENTS[kind]))):
        with pytest.raises(MalformedMessage):
            parse_event(json.dumps(EVENTS[kind] | {name: "of_the_future"}))


def holds(value: Any, said: Any) -> bool:
    """Return whether `value` contains everything in `said`. Additions are allowed."""
    if isinstance(said, dict):
        return all(name in value and holds(value[name], item) for name, item in said.items())
    if isinstance(said, list):
        return len(value) == len(said) and all(map(holds, value, said))
    return bool(value == said)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_an_older_versions_records_keep_their_meaning(path: Path) -> None:
    """A field that is newer than the journal has its default. The recorded fields keep their
    values.
    """
    for line in path.read_text().splitlines():
        said = json.loads(line)["event"]
        again = json.loads(parse_event(json.dumps(said)).to_json())
        assert holds(again, said)
