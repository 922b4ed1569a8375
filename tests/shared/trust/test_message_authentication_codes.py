"""Codes: only their writer and their reader can make them, and a reader takes them only for
messages that it could write itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.store.journal_signature_check import find_signer_of_batch
from handoff_queue.shared.trust.event_signatures import read_stamp, sign_events, without_signature
from handoff_queue.shared.trust.key_files import (
    KEYRING,
    find_private_key_file,
    make_keys,
    read_keyring,
    read_private_keys,
    rotate_key,
)
from handoff_queue.shared.trust.keyring import PublicKey, Right
from handoff_queue.shared.trust.message_authentication_codes import compute_code
from handoff_queue.shared.trust.signatures import Trust, build_bytes_to_sign
from handoff_queue.shared.types.errors import UntrustedMessage, UserError
from handoff_queue.shared.types.events import (
    CancelRequested,
    Event,
    HandoffFinished,
    RecordedEvent,
    parse_event,
)
from handoff_queue.shared.types.ids import JobId
from tests.golden.test_journals import JOURNALS, read

TEXT = '{"handoff_id": "find.1"}'
JOB = JobId("j-0123456789ab")
CANCEL = CancelRequested()
WRITER = "worker-researcher"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with the keys of an installation."""
    make_keys(tmp_path, ("researcher", "analyst"))
    return tmp_path


@pytest.fixture(scope="module")
def result() -> HandoffFinished:
    for path in JOURNALS:
        for recorded in read(path):
            if isinstance(recorded.event, HandoffFinished):
                return recorded.event
    raise AssertionError("no journal has a result")


def trust_of(keys: Path, identity: str) -> Trust:
    return Trust(keys, find_private_key_file(keys, identity))


def public_key(keys: Path, identity: str) -> PublicKey:
    return read_keyring(keys / KEYRING).identities[identity].keys[0]


def signer_of(trust: Trust, raw: str) -> str:
    """Return the identity that signed an event, as a reader of the journal finds it."""
    text, stamp = without_signature(raw.encode())
    recorded = RecordedEvent(1, 0.0, parse_event(text), raw.encode())
    return find_signer_of_batch(trust, JOB, [recorded], read_stamp(stamp)).name


def test_results_and_handoffs_have_codes_and_no_signature(
    keys: Path, result: HandoffFinished
) -> None:
    (raw,) = sign_events(trust_of(keys, WRITER), JOB, [result])
    stamp = read_stamp(without_signature(raw.encode())[1])
    assert all("~" in part for part in stamp.signature.split(","))
    for reader in ("supervisor", "client", "console"):
        assert signer_of(trust_of(keys, reader), raw) == WRITER

    handoff = trust_of(keys, "supervisor").sign_handoff("researcher", TEXT)
    reader_trust = trust_of(keys, WRITER)
    assert reader_trust.check(Right.HANDOFF, handoff, TEXT, codes=True).name == "supervisor"


@pytest.mark.parametrize("reader", ["worker-analyst", None])
def test_a_code_is_not_a_proof_for_another_process(
    keys: Path, result: HandoffFinished, reader: str | None
) -> None:
    (raw,) = sign_events(trust_of(keys, WRITER), JOB, [result])
    trust = Trust(keys) if reader is None else trust_of(keys, reader)
    with pytest.raises(UntrustedMessage, match="its code is not for this process"):
        signer_of(trust, raw)


def test_a_changed_result_is_refused(keys: Path, result: HandoffFinished) -> None:
    (raw,) = sign_events(trust_of(keys, WRITER), JOB, [result])
    changed = raw.replace(f'"turns":{result.turns}', '"turns":77')
    assert changed != raw
    with pytest.raises(UntrustedMessage, match="not worker-researcher's signature of this text"):
        signer_of(trust_of(keys, "supervisor"), changed)


def test_a_worker_cannot_make_the_code_of_another_role(keys: Path, result: HandoffFinished) -> None:
    (raw,) = sign_events(trust_of(keys, "worker-analyst"), JOB, [result])
    analyst, researcher = public_key(keys, "worker-analyst"), public_key(keys, WRITER)
    with pytest.raises(UntrustedMessage, match="not worker-researcher's signature of this text"):
        signer_of(trust_of(keys, "supervisor"), raw.replace(analyst.id, researcher.id))


def code_as(keys: Path, thief: str, writer: PublicKey, reader: PublicKey, event: Event) -> str:
    """Return an event with a code from writer to reader, as one of both can make it."""
    private = read_private_keys(find_private_key_file(keys, thief))[0]
    other = writer if private.id == reader.id else reader
    secret = private.derive_secret(other, writer.id, reader.id)
    assert secret is not None
    code = compute_code(secret, build_bytes_to_sign("fact", (JOB, "word", event.to_json())))
    stamp = f"fact/1/word/{writer.id}~{reader.id}.{code}"
    return f'{event.to_json()[:-1]},"signature":"{stamp}"}}'


def test_a_supervisor_cannot_act_as_a_user_with_the_code_that_it_shares(
    keys: Path, result: HandoffFinished
) -> None:
    client, supervisor = public_key(keys, "client"), public_key(keys, "supervisor")
    raw = code_as(keys, "supervisor", client, supervisor, CANCEL)
    with pytest.raises(UntrustedMessage, match="its code is not for this process"):
        signer_of(trust_of(keys, "supervisor"), raw)
    worker = public_key(keys, WRITER)
    assert signer_of(
        trust_of(keys, "supervisor"), code_as(keys, WRITER, worker, supervisor, result)
    ), "the same code is valid for a result"


def test_an_action_of_a_user_has_a_signature_that_every_process_checks(keys: Path) -> None:
    (raw,) = sign_events(trust_of(keys, "client"), JOB, [CANCEL])
    for reader in ("supervisor", "console", WRITER):
        assert signer_of(trust_of(keys, reader), raw) == "client"
    assert signer_of(Trust(keys), raw) == "client"


def test_a_code_for_the_key_before_a_rotation_is_accepted(keys: Path) -> None:
    """The message waits in a queue while the key of its reader rotates."""
    waiting = trust_of(keys, "supervisor").sign_handoff("researcher", TEXT)
    rotate_key(keys, WRITER)
    assert trust_of(keys, WRITER).check(Right.HANDOFF, waiting, TEXT, codes=True)
    rotate_key(keys, WRITER)
    with pytest.raises(UntrustedMessage, match="its code is not for this process"):
        trust_of(keys, WRITER).check(Right.HANDOFF, waiting, TEXT, codes=True)


def test_a_code_of_a_key_that_was_rotated_twice_is_refused(
    keys: Path, result: HandoffFinished
) -> None:
    (raw,) = sign_events(trust_of(keys, WRITER), JOB, [result])
    rotate_key(keys, WRITER)
    assert signer_of(trust_of(keys, "supervisor"), raw) == WRITER
    rotate_key(keys, WRITER)
    with pytest.raises(UntrustedMessage, match="its signature is of an unknown key"):
        signer_of(trust_of(keys, "supervisor"), raw)


def test_a_reader_that_has_not_got_its_new_key_checks_codes(keys: Path, tmp_path: Path) -> None:
    """On several hosts, the public keys are copied before the private key."""
    old = tmp_path / "old.key"
    old.write_bytes(find_private_key_file(keys, WRITER).read_bytes())
    old.chmod(0o600)
    rotate_key(keys, WRITER)
    handoff = trust_of(keys, "supervisor").sign_handoff("researcher", TEXT)
    assert Trust(keys, old).check(Right.HANDOFF, handoff, TEXT, codes=True)
    assert trust_of(keys, WRITER).check(Right.HANDOFF, handoff, TEXT, codes=True)


def test_a_running_reader_checks_codes_for_its_new_key(keys: Path) -> None:
    reader = trust_of(keys, WRITER)
    reader.check_worker(["researcher"])
    for _ in range(2):
        rotate_key(keys, WRITER)
        handoff = trust_of(keys, "supervisor").sign_handoff("researcher", TEXT)
        assert reader.check(Right.HANDOFF, handoff, TEXT, codes=True)


@pytest.mark.parametrize("identity", [WRITER, None])
def test_a_worker_and_a_process_without_a_key_read_no_journals(
    keys: Path, identity: str | None
) -> None:
    trust = Trust(keys) if identity is None else trust_of(keys, identity)
    with pytest.raises(UserError, match=r"no key to sign with|may not read journals"):
        trust.check_reader()
    trust_of(keys, "client").check_reader()
