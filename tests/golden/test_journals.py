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
    "v1-everything.jsonl": "9e4bb8055081e8a1b37778b5588e3c8a752fd0e9c8a1ab81b4bfa5c12f57a994",
    "v1-random-11.json": "9b7451f20d986cb82f49cfb9eecd19db7014ea03198b196c023d6d27e4663f4b",
    "v1-random-11.jsonl": "9b22a290f69d9f444506544e4f3cfe1bb0acea75dd2a1ea9dce6b1ef2f8ecfe7",
    "v1-random-3.json": "d9146aa3e0469583ef166d0096f684dc03ac3bb16570b11494697b4f451ca255",
    "v1-random-3.jsonl": "e3c4a090343627d21cee4c89a03f6e0f326f51641ec939e888955b0a967d2a17",
    "v2-approved.json": "797fb044f16471e06ac3402abfe888e78692829e631f22340665c6e88996934f",
    "v2-approved.jsonl": "bed6792ea18c4328281fc13bb5a63cb0f8a8c0d427e295b331e5eb4253d9db7a",
    "v2-routed.json": "013aeea81325bef6cda9d42cb911a726b2a4e4a4b07ff8d79d23a8dc86438133",
    "v2-routed.jsonl": "58b4e575a59553a48beb4d5025fe3515d2bad5e99294812da1edeb76322d52d1",
    "v2-pipeline.json": "7d157134c58b251080fbe94a0f639037b7f5b0505dbc78e3ebceae7210282b53",
    "v2-pipeline.jsonl": "19fd4916c87585832600d36ecf16d201509513edc2177deb6ca05012c7e185bb",
    "v2-second-chances.json": "4c609f742d2b951519e145c0e355aaca7d4a949ee4308c1533323dd6b0f9124b",
    "v2-second-chances.jsonl": "5c177364cfefadd223fe60db8771e15335e598d3837c466393089cf86742abac",
    "v2-gates.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-gates.jsonl": "e87bb65fdb6f6d357ba328b2d5518edfd416145b9ef263fb46862ba66645ea6b",
    "v2-conflicts.json": "495ddc926ece98d67756cb51b5eb02538ff966725ba902ac549833a8d85a5a9b",
    "v2-conflicts.jsonl": "1714c4ae97006ecef0c8a93679158f0097225618727ab9658b479f24b1d1af43",
    "v2-rubric.json": "db98b2185d8365c34d4df0a709a4c4e02482ad7e444d8d974b816599e505917c",
    "v2-rubric.jsonl": "8e03cb66ce5d6fd5059c779677f67e3d959b5bd97bbd9f21bd81ab2cbbf0bb86",
    "v2-joins.json": "1233b6e7f674cef9693107fd2a244ab242514f2f47b64a865adf1dc0409a6149",
    "v2-joins.jsonl": "6b8b707f53bc075334a5b42ed94a459246b16e3015de6af7a0bf5dcef95f7d72",
    "v2-follows.json": "5ee36aee0940b65e61b5c315e89cb99c95831bbba161271333435c3118793a37",
    "v2-follows.jsonl": "eab0994475f14a0c176a5acdede460e7c7f947339d151d8eb0b280caa147355a",
    "v3-adaptive.json": "ca9363abe2e230b27466121a560c6e176412cea093c1eed97f1bd2f028eca0ac",
    "v3-adaptive.jsonl": "3acd2fd4b253758283bab166f10e63a182b7b547d210a16497ddba9316f8d3a1",
    "v2-facts.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "v2-facts.jsonl": "4977eb949273ba8bda31e887f54331b1154dca0c124d1dd3121632b8c347e1b8",
    "v2-quoted.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "v2-quoted.jsonl": "e01c288241be3132bbd5038717762b583b3b3df2384eb7fc1275e0f254282b91",
    "v3-quarrel.json": "a5bb731b4086699ae7d9af0cf1eb0ea68a6f0532abb5211d710b548febd90822",
    "v3-quarrel.jsonl": "ce9fc5a946a694416b06fa8f5fdcd2187efa61ab4df4df3190258927c98c8a59",
    "v2-child.json": "b71378362cc0d0e0cfb48f1db6746c65251cad666a91e302421db5581af8a4a2",
    "v2-child.jsonl": "7fc5673cb03bc1ca27ea82a39b30cdbceda086c062685c8a9dc95c1d94448ef5",
    "v2-fact-gate.json": "a5bd4d5966373438e200ded188c1e7de2dac699772d42079730f3e42625a2704",
    "v2-fact-gate.jsonl": "5b791f9840e60d053427983fd3e6a71d7a9185cc6dc3f7a3aeadd7ae7895e4a0",
    "v5-finished.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v5-finished.jsonl": "96e4879197dd5171a047ab9481549fa9f138f9af49d3ec22e3a8164439aa02eb",
    "v5-helped.json": "3ae0923f9dd1769154647d1332666a8a1e457121216bf1d6954de363897aef1c",
    "v5-helped.jsonl": "c4a4c4496449c69b875e647b34fce0ef00a2d6c36afcd2540dcc51bef7c757ac",
    "v6-own-plan.json": "1bf7706e78070cdf08b8cc38ee94a38f7868180d5552f70cf01cc27d2121e2e2",
    "v6-own-plan.jsonl": "ed471c81b04c70f3721a45d61bc890f35f7b37e47e03606892d6f156a27c4b55",
    "v7-batch.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "v7-batch.jsonl": "d56ed6d228eff608a54784f3adb35d3cc85d6dc1fd6f96eaa6509446ebb5f3f9",
    "v8-taken-up.json": "2d36fc78ff663e4af4b78d32e16326faa3b0e392318930d75babb39903edffb0",
    "v8-taken-up.jsonl": "daba5a043e6aefa559d20cf86318b614de64f4f1407bd65619b44470e3101e23",
    "v9-effects.json": "c98cf404eabf635728a5b4e8ccad332109ba41f0e8a5e3a242434183c3b241d9",
    "v9-effects.jsonl": "9c8482c1b9fc3a9249b389630f0c265433d5ea2d58d385f2b048cfccd75309d8",
    "v9-conditions.json": "21c3f71be8a61c421b3c929e77924787f25e3debeff34ac7128c037788d52c30",
    "v9-conditions.jsonl": "2027ab43723cb75f980f8d49a21abecd7640993eda26f55bcb6995ccb9a12c81",
    "v9-end-task.json": "36060f585803241ecd909f8580f52fc79c17400e98f6c30b190e95d4f98300d0",
    "v9-end-task.jsonl": "90eb8ed72222b9160e6b0b531ed41066bf5f5108aee3024b1d016c539ef45882",
    "v10-actors.json": "478693c91039d037b08ce5d14dce1aa08320e4eccca35b7d812bbe359c1f9da7",
    "v10-actors.jsonl": "061ac9ad2f022f803a9626503e9b9367c6095f5d28c8f856be113457c2ffe989",
    "v11-messages.json": "e4612d5e624b77c395a1c09ad7bc1877ae21f63b07a35c354e53b96d3dc6afdd",
    "v11-messages.jsonl": "3172d73d0847613014d0f6fd41b8d92ae583a2018fb456a3834b023450837aca",
}
JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.jsonl"))


def read(path: Path) -> list[Recorded]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Recorded(line["version"], line["at"], parse_event(json.dumps(line["event"])))
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
    assert {type(recorded.event) for path in JOURNALS for recorded in read(path)} == set(
        get_args(Event)
    )


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
