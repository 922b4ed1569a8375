"""Every later version must read these journals of version 0.1.0, and find the same job in them.

A journal file never changes. A new kind of event gets a new file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    "actors.jsonl": "427d1660b964b0bc9b9c412dffb9bd2f817028214342a5d04cd62d5179aae7d7",
    "adaptive.json": "ca9363abe2e230b27466121a560c6e176412cea093c1eed97f1bd2f028eca0ac",
    "adaptive.jsonl": "088890a57f6eb22cc5efe588d67749d5b78f32cd355ffe99107b0af663be552f",
    "alone.json": "54b467ed6a7c045353230d14ec881a57cb0c14cd3811c5711c96983b8e559b48",
    "alone.jsonl": "92ed493a0be6d879c88b274d57964ed34610480fae4fa16c81b16875c9b32be8",
    "approved.json": "797fb044f16471e06ac3402abfe888e78692829e631f22340665c6e88996934f",
    "approved.jsonl": "4986c2945c5a005f636c00671f57306fa4168726433c1faba70827e7e1fa7ef6",
    "asked.json": "1f64cdaec3934aa0612b71056b54e587caabe914a75fa79e6674b6ac61c49632",
    "asked.jsonl": "a0b7aa67c504b8e9edf3c9ea6cf705bfab481dd95409e331b499b0b6897c6ee5",
    "batch.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "batch.jsonl": "4d9ed7b288ba53bc28be664490f85646c0572dc5c28e5c44dd05fe6331fc3277",
    "child.json": "b71378362cc0d0e0cfb48f1db6746c65251cad666a91e302421db5581af8a4a2",
    "child.jsonl": "a353502e0630d0e2a308b18da130cfb62e15e95e85a76381ce1560e7c91fd6be",
    "conditions.json": "21c3f71be8a61c421b3c929e77924787f25e3debeff34ac7128c037788d52c30",
    "conditions.jsonl": "7c0d52269dcdad8f475e9457bed358d9387c556fa3accdcced74f5a08e10439b",
    "conflicts.json": "495ddc926ece98d67756cb51b5eb02538ff966725ba902ac549833a8d85a5a9b",
    "conflicts.jsonl": "a8451bd65a3daa10bace359940ff95f0e5b1f7d26a57d983c81607af49ddab5d",
    "continued.json": "2d36fc78ff663e4af4b78d32e16326faa3b0e392318930d75babb39903edffb0",
    "continued.jsonl": "c6b8374538a8bfd7f6cc8830abd73c66fa131a9a849e5177781d6e414cb44f1f",
    "effects.json": "c98cf404eabf635728a5b4e8ccad332109ba41f0e8a5e3a242434183c3b241d9",
    "effects.jsonl": "df235248a46b8ed7ec7eac9dbc52c53bb778cb3a2c62e694dc60d3c52c564154",
    "end-task.json": "36060f585803241ecd909f8580f52fc79c17400e98f6c30b190e95d4f98300d0",
    "end-task.jsonl": "29775374dee81f4b9b481f4b4e880989d4d3af7902282098bc1a2ef4b057692c",
    "everything.json": "9e73f26b0d79885a053f99c799d0ccb6d0fab7411785c133a58ea0056ff627ab",
    "everything.jsonl": "f2cf1307aec0f36f2ae023750e76d9d8ada45e1bf3ac032be1488fdee485eef1",
    "fact-gate.json": "a5bd4d5966373438e200ded188c1e7de2dac699772d42079730f3e42625a2704",
    "fact-gate.jsonl": "0c4655ade616b5547c5d4b9392632e7507851996b0d0d951a665c4a4ddcaed3e",
    "facts.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "facts.jsonl": "9320fac5e17e807cd2fc8d411abdcb2620b8e62128f5169c24f0b3140dded6cf",
    "finished.json": "5b28f56fd66b004cc49ae1328b9450ad2321cf1f883751bbffef77a5ef573e72",
    "finished.jsonl": "696414bc31ca94678cff120ce2e4758f8bec6867ea959d1190c13173197d6561",
    "follows.json": "5ee36aee0940b65e61b5c315e89cb99c95831bbba161271333435c3118793a37",
    "follows.jsonl": "53fee1c82f21cf4b816c6b7045595556272b652eaa5651be52bdc4ecd23a842d",
    "fork.json": "60c46d2833077912536c7e0c591affe5baaf4692a7b82e3401b56461c09b992b",
    "fork.jsonl": "cd8cbfeda79d20429c1d06d3a2b2bf5b4cfcf2f419343a0fa63d6079d0eaf37d",
    "gates.json": "4f95747e19e33f3dfe90e7216862d73f33285917367b2e50f1e972a99a4213fd",
    "gates.jsonl": "f6df49c6bb729ed322a00cc1d88a7b827000790f72d68f356725c29917cd18b4",
    "half-price.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "half-price.jsonl": "e591cbc43a256b3980e7ffdbe78ea8c9f0403de1f79e7a7d7359f146514d057a",
    "helped.json": "3ae0923f9dd1769154647d1332666a8a1e457121216bf1d6954de363897aef1c",
    "helped.jsonl": "d2ef985a15a1727235c4d3ff77355a37537efd5418ecf1801aea3e21ef6729a2",
    "joins.json": "1233b6e7f674cef9693107fd2a244ab242514f2f47b64a865adf1dc0409a6149",
    "joins.jsonl": "811b11465195c85f700296219898897a3654bdd75607d7011ae82dfdaf6fc78b",
    "messages.json": "e4612d5e624b77c395a1c09ad7bc1877ae21f63b07a35c354e53b96d3dc6afdd",
    "messages.jsonl": "ebafc30e4303e24778386667e83685fa711c86aef9e594ad393bbd3b9c01ea2f",
    "origins.json": "66d56480f4803765cebdbb1a2b548737e3bf2bf80862e3e276b95d00416a58e4",
    "origins.jsonl": "e0381dcd3d75789e480a566709e396a9e5260da1a294c342abd1ac630d8f292e",
    "own-plan.json": "1bf7706e78070cdf08b8cc38ee94a38f7868180d5552f70cf01cc27d2121e2e2",
    "own-plan.jsonl": "8580180fc236ff7153ee5d979a848932c1bad09ba047995decea69fcb3f842ba",
    "pipeline.json": "7d157134c58b251080fbe94a0f639037b7f5b0505dbc78e3ebceae7210282b53",
    "pipeline.jsonl": "aad05dc85c234f35ff60b965971a1f0e065d2bdd97ca1cb1bfeaca1874bc14ab",
    "quarrel.json": "a5bb731b4086699ae7d9af0cf1eb0ea68a6f0532abb5211d710b548febd90822",
    "quarrel.jsonl": "e86c0588d104798ac97de5498c33b59e7edaafb27e60e9f68ff968208e66a8a6",
    "quoted.json": "ce03b42fddd9e7730a72da426bc1e33fde9185635c0cda0954faf081d620e1ae",
    "quoted.jsonl": "88cb4d539355cd119f562afed1af06328154c9b7ad773b4b9ee2b47b12a203ed",
    "random-11.json": "9b7451f20d986cb82f49cfb9eecd19db7014ea03198b196c023d6d27e4663f4b",
    "random-11.jsonl": "d23634bf051b3dc59e2beb6f5fe13a175230617ef06dfbf2153d40972b96d2f1",
    "random-3.json": "d9146aa3e0469583ef166d0096f684dc03ac3bb16570b11494697b4f451ca255",
    "random-3.jsonl": "87e350055f956192de068298d2cdb036798add9c7fb7d80d022a9f6f6f992833",
    "routed.json": "013aeea81325bef6cda9d42cb911a726b2a4e4a4b07ff8d79d23a8dc86438133",
    "routed.jsonl": "5cc71f20cf2c253e3c3376ca19006453a0dc256d7f88713eb7991b330314bd17",
    "rubric.json": "db98b2185d8365c34d4df0a709a4c4e02482ad7e444d8d974b816599e505917c",
    "rubric.jsonl": "11cdac19df1182336fbd0ee515b138385e7fe9399466382525e8441ff474ca48",
    "second-chances.json": "4c609f742d2b951519e145c0e355aaca7d4a949ee4308c1533323dd6b0f9124b",
    "second-chances.jsonl": "1ee46807ce0bcf1476a68f8192d39d9667caa51d64d2e186429cfcadea417127",
    "shared.json": "170c473abe29be652cb9a9b1947e81c17a878d715c75e8171e1c9fe8f15e5fcd",
    "shared.jsonl": "72c6d96919874add198a7da6dbf12bbac62341fad3f902c9ee61ba95bbfdcdc0",
    "token-limits.json": "53fb202d47e472c6a3452aa97d9b716c5c9e865614c084b6c958a255567d9476",
    "token-limits.jsonl": "c15dcc8d5eada9ae16c1c89db7f595d6666b86e402a425cf5605540388e3484f",
    "tool-calls.json": "cdca06578cad8da416e5b5f5ac649e5536cb93931834883955465a5758ae097b",
    "tool-calls.jsonl": "44492b992af29f5db4cdfc26d8e80efdf71e90c82b544e6b9aab5d20831d0789",
}
JOURNALS_FOLDER = Path(__file__).parent / "journals"
JOURNALS = sorted(JOURNALS_FOLDER.glob("*.jsonl"))


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
                "why": digest_of_ref(step.problem_result),
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


def write_journal(
    name: str, journal: Sequence[RecordedEvent], folder: Path = JOURNALS_FOLDER
) -> dict[str, str]:
    """Write the files of a new journal. Return their entries for `DIGESTS`."""
    lines: list[str] = []
    for recorded in journal:
        event = json.loads(recorded.event.to_json())
        lines.append(json.dumps({"at": recorded.at, "event": event, "version": recorded.version}))
    file = folder / f"{name}.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    state = fold(JobId(JOB), None, read(file))
    assert state is not None
    file.with_suffix(".json").write_text(json.dumps(facts(state), indent=1, sort_keys=True) + "\n")
    files = (file.with_suffix(".json"), file)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_written_journal_has_the_same_events(tmp_path: Path) -> None:
    journal = read(JOURNALS_FOLDER / "everything.jsonl")
    entries = write_journal("copy", journal, tmp_path)
    assert read(tmp_path / "copy.jsonl") == journal
    assert list(entries) == ["copy.json", "copy.jsonl"]


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_a_journal_of_an_older_version_has_the_same_facts(path: Path) -> None:
    state = fold(JobId(JOB), None, read(path))

    assert state is not None
    assert facts(state) == json.loads(path.with_suffix(".json").read_text())


def test_the_files_of_golden_journals_are_unchanged() -> None:
    """A new journal needs new entries in `DIGESTS`."""
    assert {
        path.name: sha256(path.read_bytes()).hexdigest() for path in JOURNALS_FOLDER.iterdir()
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
