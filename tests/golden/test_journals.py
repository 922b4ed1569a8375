"""Every later version must read these journals of version 0.1.0, and find the same job in them.

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
    "actors.json": "478693c91039d037b08ce5d14dce1aa08320e4eccca35b7d812bbe359c1f9da7",
    "actors.jsonl": "6f38cd0078bec5ee1275ff0a20604d433b7ee2dd137162cc5a8f5def68b6e274",
    "adaptive.json": "ca9363abe2e230b27466121a560c6e176412cea093c1eed97f1bd2f028eca0ac",
    "adaptive.jsonl": "425566de568a81832557a3c4df2fb3b5a98d88d07d47db14e1d52e11d789a101",
    "approved.json": "797fb044f16471e06ac3402abfe888e78692829e631f22340665c6e88996934f",
    "approved.jsonl": "f9af1f2737578f74361142cf780902ddd74eb6514c02da1f0be2a6afdfe101dd",
    "asked.json": "1f64cdaec3934aa0612b71056b54e587caabe914a75fa79e6674b6ac61c49632",
    "asked.jsonl": "90d979408cabd71ebf9f995cf2cb9421503dea9cf6f89eb4de4d98663e638b9c",
    "batch.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "batch.jsonl": "3615c2579afc341175098678d7a5bc54f299f54f0f34cb4c0c1b57aa880d3108",
    "child.json": "b71378362cc0d0e0cfb48f1db6746c65251cad666a91e302421db5581af8a4a2",
    "child.jsonl": "81568eb677b61b5d187ac24ba7baae8bbc48226a93b0710bbd4dbc3a79fb4543",
    "conditions.json": "21c3f71be8a61c421b3c929e77924787f25e3debeff34ac7128c037788d52c30",
    "conditions.jsonl": "26b39f448ba707a88953d432011eee4ddea426ffc096fad63000173809a03178",
    "conflicts.json": "495ddc926ece98d67756cb51b5eb02538ff966725ba902ac549833a8d85a5a9b",
    "conflicts.jsonl": "64d1f84f21d4af9ab4eaa224d7e214ba6a43f56beb57a2e7c8d8b562e8435cc8",
    "continued.json": "2d36fc78ff663e4af4b78d32e16326faa3b0e392318930d75babb39903edffb0",
    "continued.jsonl": "4881860992c1a2d1c68f8ef7b3675225e9f45332cbbb9dd684ae43d71b635547",
    "effects.json": "c98cf404eabf635728a5b4e8ccad332109ba41f0e8a5e3a242434183c3b241d9",
    "effects.jsonl": "ae3719ca30df0d94424c07404351bdab6601d00bcd8f67dcdcda00ec13720cc8",
    "end-task.json": "36060f585803241ecd909f8580f52fc79c17400e98f6c30b190e95d4f98300d0",
    "end-task.jsonl": "48139698675c58f7049580513671bb2cb6c89b4862c5133ad702ecb026d25f1f",
    "everything.json": "9e73f26b0d79885a053f99c799d0ccb6d0fab7411785c133a58ea0056ff627ab",
    "everything.jsonl": "9b861cdb0504a453c0604c3c6eb9d815053e14032dcb0507c3a1ab32a4b8f123",
    "fact-gate.json": "a5bd4d5966373438e200ded188c1e7de2dac699772d42079730f3e42625a2704",
    "fact-gate.jsonl": "fa5a80cf4e2a4f27ee7a6cc8e5e56f6ae86d28cc72f9e0bfb5173c979cce905f",
    "facts.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "facts.jsonl": "f3497a7eb3c5f8f48045dccb9b5ffb5b9e26ad5fc9033f25d004b6b0c7aa0f27",
    "finished.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "finished.jsonl": "99a307fa31ffe7c4256c5511d95303a6278c030a091d541516ad4175ed17ad25",
    "follows.json": "5ee36aee0940b65e61b5c315e89cb99c95831bbba161271333435c3118793a37",
    "follows.jsonl": "1e8a58bff0e4dc4a8ffad4abf203ee5649a19ea9143609cf04585922ec246660",
    "fork.json": "60c46d2833077912536c7e0c591affe5baaf4692a7b82e3401b56461c09b992b",
    "fork.jsonl": "7ed74123874690761862d232a34a8da36b8514c228639a932f3cf08a8628acab",
    "gates.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "gates.jsonl": "8424ce6411626bbdd676248707064804d8f7aece9e2849c94a139d1a4876b334",
    "half-price.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "half-price.jsonl": "37d60e464052e4cc76e4c10a943feb895832e7373bc2839290959af001b8aa52",
    "helped.json": "3ae0923f9dd1769154647d1332666a8a1e457121216bf1d6954de363897aef1c",
    "helped.jsonl": "ba771e043c1664881a87d47b728fb00cd61a2eb7d964802489dc99a6cc8117f1",
    "joins.json": "1233b6e7f674cef9693107fd2a244ab242514f2f47b64a865adf1dc0409a6149",
    "joins.jsonl": "40dd27de2c5d0d3a0d0338adda50a29d23ff600d9b121b5d6bb08a836f775ebd",
    "messages.json": "e4612d5e624b77c395a1c09ad7bc1877ae21f63b07a35c354e53b96d3dc6afdd",
    "messages.jsonl": "fb7f903147b39ca1bc5f486ee183332e9b36aa09777950253d66f4b33ccdb05a",
    "origins.json": "66d56480f4803765cebdbb1a2b548737e3bf2bf80862e3e276b95d00416a58e4",
    "origins.jsonl": "1f3a1dc9f6fe8bfbaffc9c661796898b8b2575cd45d9a4ae0f2e3397da0faa0b",
    "own-plan.json": "1bf7706e78070cdf08b8cc38ee94a38f7868180d5552f70cf01cc27d2121e2e2",
    "own-plan.jsonl": "f40bd10acc2bbe5f345e04e364cc1208f2114ee1c9d536ed2003208d939b1687",
    "pipeline.json": "7d157134c58b251080fbe94a0f639037b7f5b0505dbc78e3ebceae7210282b53",
    "pipeline.jsonl": "9f2c69908a8175b045b2a05154d5d3d02c75855b60d58da9b75eb561cd23fd27",
    "quarrel.json": "a5bb731b4086699ae7d9af0cf1eb0ea68a6f0532abb5211d710b548febd90822",
    "quarrel.jsonl": "bf1c521c3751b87c6e55daefa397a7129209c13d894b0b289bd12935af0e9296",
    "quoted.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "quoted.jsonl": "f0719538ff46fb8ea9362a8cd9d755c1c6e6ced7a03b034c520a54407127ad94",
    "random-11.json": "9b7451f20d986cb82f49cfb9eecd19db7014ea03198b196c023d6d27e4663f4b",
    "random-11.jsonl": "dd89fdde2e71dab8d1f4beacc443dced1d9e15eefea315342825e61c414c5def",
    "random-3.json": "d9146aa3e0469583ef166d0096f684dc03ac3bb16570b11494697b4f451ca255",
    "random-3.jsonl": "4c9bb28c019558627bfd7cf630efa365dbfd8ab92585a2b1594e5feb8facdec5",
    "routed.json": "013aeea81325bef6cda9d42cb911a726b2a4e4a4b07ff8d79d23a8dc86438133",
    "routed.jsonl": "c660a561d4adb61071777e8ed287ac4cd5d43411570a5fda4c8f8982dc65606b",
    "rubric.json": "db98b2185d8365c34d4df0a709a4c4e02482ad7e444d8d974b816599e505917c",
    "rubric.jsonl": "1e3b83ab55e3f020d5e8f21c4021db269064e2e9208514a305edddf71331280e",
    "second-chances.json": "4c609f742d2b951519e145c0e355aaca7d4a949ee4308c1533323dd6b0f9124b",
    "second-chances.jsonl": "4c2b779fcde3cdd8267cc9ef46f5b35ea1ac595451ab57d838ad008809f9984d",
    "shared.json": "170c473abe29be652cb9a9b1947e81c17a878d715c75e8171e1c9fe8f15e5fcd",
    "shared.jsonl": "b921da4b017bb9b9ef1a04d007ee9f16c054925f54d0fd6c3775b7eaf383f527",
    "token-limits.json": "53fb202d47e472c6a3452aa97d9b716c5c9e865614c084b6c958a255567d9476",
    "token-limits.jsonl": "f7385a1e4e48ea9c729d4deb5c2d87c2b0bc2ae31139a19e6325b43ad97aaf30",
    "tool-calls.json": "cdca06578cad8da416e5b5f5ac649e5536cb93931834883955465a5758ae097b",
    "tool-calls.jsonl": "c18815855337a4e919c926c100adce36ffc93442c6510cbe8bec8cb47e2eb963",
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
        "webhook": state.webhook.delivered,
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
