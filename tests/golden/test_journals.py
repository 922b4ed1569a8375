"""Every later version must read these journals, and find the same job in them.

A journal file never changes. A new kind of event gets a new file.
"""

from __future__ import annotations

import json
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import Event, EventRefused, RecordedEvent, parse_event
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.handoffs import JOB

DIGESTS = {
    "v1-asked.json": "1f64cdaec3934aa0612b71056b54e587caabe914a75fa79e6674b6ac61c49632",
    "v1-asked.jsonl": "7eba12f2f42dc11d36e05a433eaafcf674fb48207e62f4653bd36b12d957ad88",
    "v1-everything.json": "9e73f26b0d79885a053f99c799d0ccb6d0fab7411785c133a58ea0056ff627ab",
    "v1-everything.jsonl": "20e51a1fabfcec8158d91a129c9d77ef75fda519fbb6d9f8fc873f68bc50be53",
    "v1-random-11.json": "9b7451f20d986cb82f49cfb9eecd19db7014ea03198b196c023d6d27e4663f4b",
    "v1-random-11.jsonl": "9b22a290f69d9f444506544e4f3cfe1bb0acea75dd2a1ea9dce6b1ef2f8ecfe7",
    "v1-random-3.json": "d9146aa3e0469583ef166d0096f684dc03ac3bb16570b11494697b4f451ca255",
    "v1-random-3.jsonl": "73ff089f1486bb7a4a389e2183f6b600af4c0d6d85d3d603b5ca6aa834db8bd0",
    "v2-approved.json": "797fb044f16471e06ac3402abfe888e78692829e631f22340665c6e88996934f",
    "v2-approved.jsonl": "5552891de4aa99d24b1320ccaa355f68e6b11070d1f48dbd42372454ac1918ea",
    "v2-routed.json": "013aeea81325bef6cda9d42cb911a726b2a4e4a4b07ff8d79d23a8dc86438133",
    "v2-routed.jsonl": "f5a0112952e281f1ab6acd0875a57eb2568b83c6a1407c538f72deda9b7b8c8b",
    "v2-pipeline.json": "7d157134c58b251080fbe94a0f639037b7f5b0505dbc78e3ebceae7210282b53",
    "v2-pipeline.jsonl": "de4dbcfe46fd47d1b66dd376e28f652de30f80d3440d2efe7b21471af4e0c7cb",
    "v2-second-chances.json": "4c609f742d2b951519e145c0e355aaca7d4a949ee4308c1533323dd6b0f9124b",
    "v2-second-chances.jsonl": "0b08f85a5a8b05f22a04b30828cbce0140512c4a1eb23d76555da3d602e6d67c",
    "v2-gates.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-gates.jsonl": "49c1997d3900c0d69ece359f9fcb9bb53311568d6bf6ce3858f9c3d53f5d304f",
    "v2-conflicts.json": "495ddc926ece98d67756cb51b5eb02538ff966725ba902ac549833a8d85a5a9b",
    "v2-conflicts.jsonl": "96a84b2446cff18de5cc372a699725d37357959f46cbb2048c0bffa2b56cc24f",
    "v2-rubric.json": "db98b2185d8365c34d4df0a709a4c4e02482ad7e444d8d974b816599e505917c",
    "v2-rubric.jsonl": "80e30f8d23f77c95469aeee26ac52ac6ec31f2173de245850d46e85046a1d6e8",
    "v2-joins.json": "1233b6e7f674cef9693107fd2a244ab242514f2f47b64a865adf1dc0409a6149",
    "v2-joins.jsonl": "aa5f660752b08b69cf75660d02f799fc5c55cd2d665a2c5681425098ac49663b",
    "v2-follows.json": "5ee36aee0940b65e61b5c315e89cb99c95831bbba161271333435c3118793a37",
    "v2-follows.jsonl": "2e64a95a3198e46c8d4769c7ef5ac0c4eb085530a7dea7d631afd8ef861d3011",
    "v3-adaptive.json": "ca9363abe2e230b27466121a560c6e176412cea093c1eed97f1bd2f028eca0ac",
    "v3-adaptive.jsonl": "e42331022e69759287a8a50ea3151a2e213014fa8bd4acd0036e0d1fae2b0c22",
    "v2-facts.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-facts.jsonl": "3f592cf6c62ecd62319887f84f11b96d7981f54ed690ab80841f8c69470adcea",
    "v2-quoted.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "v2-quoted.jsonl": "dadc71b04dd464696e1adbc21ff3ff211b5a288698882873795f7d64356c4ac4",
    "v3-quarrel.json": "a5bb731b4086699ae7d9af0cf1eb0ea68a6f0532abb5211d710b548febd90822",
    "v3-quarrel.jsonl": "6418c674c256b0118edf4caaaf69cf57991d7c1b64f30422e9b1b71ecbe464b7",
    "v2-child.json": "b71378362cc0d0e0cfb48f1db6746c65251cad666a91e302421db5581af8a4a2",
    "v2-child.jsonl": "4b299f1cdb21004c9be62e0d5fee1c69d06ab82c2007bfdce1510876adf4042e",
    "v2-fact-gate.json": "a5bd4d5966373438e200ded188c1e7de2dac699772d42079730f3e42625a2704",
    "v2-fact-gate.jsonl": "bb350cb14e0ea9ec0d363a56418346abe06d151689cd48c3e18cf49a1504090d",
    "v5-finished.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v5-finished.jsonl": "8acde3a120d70c3da97c891a6ba55a99f78edb0123f5bdb053f13a345d4dc83c",
    "v5-helped.json": "3ae0923f9dd1769154647d1332666a8a1e457121216bf1d6954de363897aef1c",
    "v5-helped.jsonl": "84835954e4fba4be96d249baeb96df95e5b7a392c7dfd4ab1e22678ee4647b34",
    "v6-own-plan.json": "1bf7706e78070cdf08b8cc38ee94a38f7868180d5552f70cf01cc27d2121e2e2",
    "v6-own-plan.jsonl": "8312b1542214d7bca38e4ceb53ac071f7452a7233d9d0d73c33d8bd82561df15",
    "v7-batch.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v7-batch.jsonl": "a50a21c4ebeeb4823494fcc338c89c2e79006c2435cbd8eaa152eb4198488171",
    "v8-continued.json": "2d36fc78ff663e4af4b78d32e16326faa3b0e392318930d75babb39903edffb0",
    "v8-continued.jsonl": "b0136d061a95dda4603c052892529226a97a3c66b735c695da8adb9adc358fba",
    "v9-effects.json": "c98cf404eabf635728a5b4e8ccad332109ba41f0e8a5e3a242434183c3b241d9",
    "v9-effects.jsonl": "0251c97f36776227e4c512d65ed5283030c776d0770c44715919caa26b046c03",
    "v9-conditions.json": "21c3f71be8a61c421b3c929e77924787f25e3debeff34ac7128c037788d52c30",
    "v9-conditions.jsonl": "f548da70b55b303167e1b0369461caa9b21e756a1d0dc16fe0a0d02b6e5c1417",
    "v9-end-task.json": "36060f585803241ecd909f8580f52fc79c17400e98f6c30b190e95d4f98300d0",
    "v9-end-task.jsonl": "612502f92333765f43c3defa42e3434d49744a87ee8d6868da292e868e52d722",
    "v10-actors.json": "478693c91039d037b08ce5d14dce1aa08320e4eccca35b7d812bbe359c1f9da7",
    "v10-actors.jsonl": "80b89a14bf1032f55d7fc1c61cac4c765da771ea95614bed298236dd6aad4842",
    "v11-messages.json": "e4612d5e624b77c395a1c09ad7bc1877ae21f63b07a35c354e53b96d3dc6afdd",
    "v11-messages.jsonl": "3172d73d0847613014d0f6fd41b8d92ae583a2018fb456a3834b023450837aca",
    "v12-tool-calls.json": "cdca06578cad8da416e5b5f5ac649e5536cb93931834883955465a5758ae097b",
    "v12-tool-calls.jsonl": "c1eb3f2ff80cf2f318344e926694a3f31e529113e3c4d21a7bb37e9c994b0ab4",
    "v13-origins.json": "66d56480f4803765cebdbb1a2b548737e3bf2bf80862e3e276b95d00416a58e4",
    "v13-origins.jsonl": "c81f1d38900e98d02c67f2dfbc07598caddd38470dac575ccb99dd2c1fdfee5a",
    "v14-fork.json": "60c46d2833077912536c7e0c591affe5baaf4692a7b82e3401b56461c09b992b",
    "v14-fork.jsonl": "7ed74123874690761862d232a34a8da36b8514c228639a932f3cf08a8628acab",
    "v15-shared.json": "170c473abe29be652cb9a9b1947e81c17a878d715c75e8171e1c9fe8f15e5fcd",
    "v15-shared.jsonl": "1f7ad2967cd99f1a4222cf69b2b0a3284de8f497459f097fda2567336030218b",
    "v16-half-price.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "v16-half-price.jsonl": "e74aaa844caa496f70d18284ecfe49606288cc432b7440dd0f5bd9b1650e3497",
}
JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.jsonl"))


def read(path: Path) -> list[RecordedEvent]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        RecordedEvent(line["version"], line["at"], parse_event(json.dumps(line["event"])))
        for line in lines
    ]


def digest_of_ref(ref: BlobRef | None) -> str | None:
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
                "why": digest_of_ref(step.trouble),
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


def test_the_files_of_golden_journals_are_unchanged() -> None:
    """A new journal needs new entries in `DIGESTS`."""
    assert {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in (Path(__file__).parent / "journals").iterdir()
    } == DIGESTS


def test_every_kind_of_event_is_in_some_journal() -> None:
    """A reader makes `EventRefused` in memory. No journal holds it."""
    assert {type(recorded.event) for path in JOURNALS for recorded in read(path)} == set(
        get_args(Event)
    ) - {EventRefused}


EVENTS = {
    type(recorded.event): json.loads(recorded.event.to_json())
    for path in JOURNALS
    for recorded in read(path)
}


def enums_in(value: Any) -> list[str]:
    """Return the names of the event's fields whose value is a member of an enum."""
    return [name for name, item in value if isinstance(item, StrEnum)]


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_with_an_unknown_field_is_refused(kind: Any) -> None:
    with pytest.raises(MalformedMessage):
        parse_event(json.dumps(EVENTS[kind] | {"of_the_future": None}))


def test_an_unknown_kind_of_event_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        parse_event('{"type": "of_the_future"}')


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_with_an_unknown_enum_value_is_refused(kind: Any) -> None:
    for name in enums_in(parse_event(json.dumps(EVENTS[kind]))):
        with pytest.raises(MalformedMessage):
            parse_event(json.dumps(EVENTS[kind] | {name: "of_the_future"}))


def contains(value: Any, expected: Any) -> bool:
    """Return whether `value` contains everything in `expected`. It may have additional fields."""
    if isinstance(expected, dict):
        return all(name in value and contains(value[name], item) for name, item in expected.items())
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(contains, value, expected))
    return bool(value == expected)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_an_older_versions_records_keep_their_meaning(path: Path) -> None:
    """A field that is newer than the journal has its default. The recorded fields keep their
    values.
    """
    for line in path.read_text().splitlines():
        recorded = json.loads(line)["event"]
        parsed = json.loads(parse_event(json.dumps(recorded)).to_json())
        assert contains(parsed, recorded)


def written_fields(value: Any, recorded: Any) -> set[tuple[type[Message], str]]:
    """Return the fields that a record has, of a message and of the parts of the message."""
    fields: set[tuple[type[Message], str]] = set()
    if isinstance(value, Message):
        for name in recorded:
            fields |= {(type(value), name)}
            fields |= written_fields(getattr(value, name), recorded[name])
    elif isinstance(value, tuple):
        for part, recorded_part in zip(value, recorded, strict=True):
            fields |= written_fields(part, recorded_part)
    return fields


def test_every_field_that_is_always_written_is_in_some_journal() -> None:
    """An older version cannot read a new field. Give the field `OmitNone`, or add a journal with
    the field and deploy the readers first (decision 11).
    """
    fields: set[tuple[type[Message], str]] = set()
    for path in JOURNALS:
        for line in path.read_text().splitlines():
            recorded = json.loads(line)["event"]
            fields |= written_fields(parse_event(json.dumps(recorded)), recorded)

    missing: list[str] = []
    for kind in sorted({kind for kind, _ in fields}, key=lambda kind: kind.__name__):
        for name, field in kind.model_fields.items():
            if field.exclude_if is None and (kind, name) not in fields:
                missing.append(f"{kind.__name__}.{name}")
    assert missing == []
