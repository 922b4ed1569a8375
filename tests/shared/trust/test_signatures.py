"""Signatures: only the named identity can make them, for one purpose, and keys rotate."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.trust.key_files import (
    KEYRING,
    find_private_key_file,
    make_keys,
    read_keyring,
    rotate_key,
)
from handoff_queue.shared.trust.keyring import MAX_KEYS, SUPERVISOR_RIGHTS, WORKER_RIGHTS, Right
from handoff_queue.shared.trust.signatures import NO_TRUST, Signer, Trust
from handoff_queue.shared.types.errors import UntrustedMessage, UserError

TEXT = '{"handoff_id": "find.1"}'


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with the keys of an installation."""
    make_keys(tmp_path, ("researcher", "analyst"))
    return tmp_path


def trust_of(keys: Path, identity: str) -> Trust:
    return Trust(keys, find_private_key_file(keys, identity))


def test_the_signature_of_a_supervisor_is_accepted_for_the_same_text(keys: Path) -> None:
    signature = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    signer = Trust(keys).check(Right.HANDOFF, signature, TEXT)
    assert signer.name == "supervisor"


def test_a_missing_signature_is_refused(keys: Path) -> None:
    for nothing in (None, "", 7, ["supervisor"]):
        with pytest.raises(UntrustedMessage, match="it has no signature"):
            Trust(keys).check(Right.HANDOFF, nothing, TEXT)


def test_a_changed_text_is_refused(keys: Path) -> None:
    signature = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    with pytest.raises(UntrustedMessage, match="not supervisor's signature of this text"):
        Trust(keys).check(Right.HANDOFF, signature, TEXT + " ")


def test_two_texts_cannot_be_divided_in_another_place(keys: Path) -> None:
    signature = trust_of(keys, "supervisor").sign(Right.HANDOFF, "ab", "c")
    for texts in (("a", "bc"), ("abc",), ("ab\0c",), ("ab", "c", "")):
        with pytest.raises(UntrustedMessage):
            Trust(keys).check(Right.HANDOFF, signature, *texts)


def test_a_signature_is_worthless_for_another_purpose(keys: Path) -> None:
    signature = trust_of(keys, "client").sign(Right.SUBMIT, TEXT)
    with pytest.raises(UntrustedMessage, match="not client's signature"):
        Trust(keys).check(Right.CANCEL, signature, TEXT)


def test_an_identity_cannot_sign_other_messages_than_its_own(keys: Path) -> None:
    worker = trust_of(keys, "worker-researcher")
    with pytest.raises(UserError, match="worker-researcher, which may not sign handoff"):
        worker.sign(Right.HANDOFF, TEXT)
    forged = worker.sign_for((), "handoff", TEXT)
    with pytest.raises(UntrustedMessage, match="worker-researcher, which may not sign handoff"):
        Trust(keys).check(Right.HANDOFF, forged, TEXT)


def test_a_key_of_another_installation_is_unknown(keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "other")
    signature = trust_of(tmp_path / "other", "supervisor").sign(Right.HANDOFF, TEXT)
    with pytest.raises(UntrustedMessage, match="its signature is of an unknown key"):
        Trust(keys).check(Right.HANDOFF, signature, TEXT)


def test_a_damaged_signature_is_refused(keys: Path) -> None:
    signature = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    key_id, _, encoded = signature.partition(".")
    for damaged in (key_id, f"{key_id}.", f"{key_id}.é", f"{key_id}.{encoded[:-4]}", encoded):
        with pytest.raises(UntrustedMessage):
            Trust(keys).check(Right.HANDOFF, damaged, TEXT)


def test_a_text_that_is_read_again_is_verified_once_and_only_with_its_own_signature(
    keys: Path,
) -> None:
    reader = Trust(keys)
    signature = trust_of(keys, "worker-analyst").sign(Right.ANNOUNCE, TEXT)
    first = reader.check(Right.ANNOUNCE, signature, TEXT, again=True)
    assert reader.check(Right.ANNOUNCE, signature, TEXT, again=True) is first
    with pytest.raises(UntrustedMessage):
        reader.check(Right.ANNOUNCE, signature, TEXT + " ", again=True)


class ForgottenWhenFound(dict[tuple[str, bytes], Signer]):
    """Signatures that another thread forgets as soon as this thread has looked for one."""

    def __contains__(self, key: object) -> bool:
        is_there = super().__contains__(key)
        self.clear()
        return is_there


def test_a_remembered_signature_that_another_thread_forgets_is_verified_again(keys: Path) -> None:
    reader = Trust(keys)
    signature = trust_of(keys, "worker-analyst").sign(Right.ANNOUNCE, TEXT)
    first = reader.check(Right.ANNOUNCE, signature, TEXT, again=True)
    reader._remembered = ForgottenWhenFound(reader._remembered)
    assert reader.check(Right.ANNOUNCE, signature, TEXT, again=True) == first


def test_the_first_signature_after_a_rotation_has_the_new_key(keys: Path) -> None:
    trust = trust_of(keys, "supervisor")
    new = rotate_key(keys, "supervisor")

    assert trust.sign(Right.HANDOFF, "a text").startswith(f"{new.id}.")


def test_a_running_process_accepts_and_uses_a_rotated_key(keys: Path) -> None:
    supervisor, worker = trust_of(keys, "supervisor"), Trust(keys)
    before = supervisor.sign(Right.HANDOFF, TEXT)

    new = rotate_key(keys, "supervisor")

    after = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    assert after.startswith(new.id)
    assert worker.check(Right.HANDOFF, after, TEXT).key_id == new.id
    assert worker.check(Right.HANDOFF, before, TEXT).key_id == before.split(".")[0]


def test_the_key_before_the_last_one_is_no_longer_valid(keys: Path) -> None:
    oldest = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    for _ in range(MAX_KEYS):
        rotate_key(keys, "supervisor")
    with pytest.raises(UntrustedMessage, match="unknown key"):
        Trust(keys).check(Right.HANDOFF, oldest, TEXT)


def test_private_keys_are_secret_files_and_the_keyring_has_no_secret(keys: Path) -> None:
    private = sorted(keys.glob("*.key"))
    assert [file.stem for file in private] == [
        "client", "console", "supervisor", "worker-analyst", "worker-researcher",
    ]  # fmt: skip
    rotate_key(keys, "client")
    public = (keys / KEYRING).read_text()
    for file in private:
        assert file.stat().st_mode & 0o777 == 0o600
        secret = file.read_text().splitlines()[1]
        assert secret not in public
    assert list(keys.glob(".*")) == [], "no half-written file stays"


def test_a_private_key_that_others_can_read_is_refused(keys: Path) -> None:
    find_private_key_file(keys, "client").chmod(0o640)
    with pytest.raises(UserError, match=r"other users can read the private key .*chmod 600"):
        trust_of(keys, "client").sign(Right.SUBMIT, TEXT)


def test_keys_that_exist_are_kept_and_missing_ones_are_added(keys: Path) -> None:
    before = read_keyring(keys / KEYRING).identities
    assert make_keys(keys, ("writer",)) == ["worker-writer"]
    after = dict(read_keyring(keys / KEYRING).identities)
    assert after.pop("worker-writer").specialists == ("writer",)
    assert after == before


def test_one_key_is_for_the_workers_of_all_specialists_if_no_role_is_named(tmp_path: Path) -> None:
    make_keys(tmp_path)
    worker = trust_of(tmp_path, "worker")
    worker.check_worker(["researcher", "coder"])
    assert worker.signer.identity.serves("coder")


def test_a_worker_of_another_role_does_not_start(keys: Path) -> None:
    worker = trust_of(keys, "worker-researcher")
    worker.check_worker(["researcher"])
    with pytest.raises(UserError, match="worker-researcher, which may not work for writer"):
        worker.check_worker(["researcher", "writer"])
    with pytest.raises(UserError, match="may not sign handoff"):
        worker.check_supervisor()


def test_the_error_about_a_key_of_another_kind_names_the_variable_and_the_file(keys: Path) -> None:
    client = trust_of(keys, "client")
    fix = f"set HANDOFF_SIGNING_KEY to {keys}"

    with pytest.raises(UserError, match=rf"may not sign result: {fix}/worker-analyst\.key$"):
        client.check_worker(["analyst"])
    with pytest.raises(UserError, match=rf"may not sign handoff: {fix}/supervisor\.key$"):
        client.check_supervisor()
    with pytest.raises(UserError, match=rf"may not read journals: {fix}/client\.key or "):
        trust_of(keys, "worker-analyst").check_reader()
    with pytest.raises(UserError, match=rf"may not work for analyst: {fix}/worker-analyst\.key$"):
        trust_of(keys, "worker-researcher").check_worker(["analyst"])


def test_the_error_about_a_missing_key_names_the_command_that_makes_it(keys: Path) -> None:
    with pytest.raises(UserError, match="`handoff keys init DIR --specialist SPECIALIST`"):
        trust_of(keys, "client").check_worker(["writer"])


def test_a_process_with_the_key_of_another_kind_finds_its_own_key(keys: Path) -> None:
    make_keys(keys)  # a key for the workers of all specialists, too
    client = trust_of(keys, "client")

    assert client.find_key_of(SUPERVISOR_RIGHTS) == keys / "supervisor.key"
    assert client.find_key_of(WORKER_RIGHTS, ["writer"]) == keys / "worker.key"
    assert client.find_key_of(WORKER_RIGHTS, ["analyst"]) == keys / "worker-analyst.key"
    assert client.find_key_of(WORKER_RIGHTS, ["analyst", "researcher"]) == keys / "worker.key"


def test_a_process_takes_no_key_in_place_of_a_key_of_its_kind(keys: Path) -> None:
    assert trust_of(keys, "supervisor").find_key_of(SUPERVISOR_RIGHTS) is None
    assert trust_of(keys, "worker-analyst").find_key_of(WORKER_RIGHTS, ["researcher"]) is None
    assert NO_TRUST.find_key_of(WORKER_RIGHTS, ["analyst"]) is None


def test_a_process_takes_no_key_that_is_missing_or_open_or_of_another_identity(keys: Path) -> None:
    client = trust_of(keys, "client")
    own = find_private_key_file(keys, "supervisor")

    own.chmod(0o644)
    assert client.find_key_of(SUPERVISOR_RIGHTS) is None
    own.unlink()
    assert client.find_key_of(SUPERVISOR_RIGHTS) is None
    find_private_key_file(keys, "console").rename(own)
    assert client.find_key_of(SUPERVISOR_RIGHTS) is None


def test_a_process_without_a_key_of_its_own_checks_and_signs_nothing(keys: Path) -> None:
    with pytest.raises(UserError, match="name the file of its private key in HANDOFF_SIGNING_KEY"):
        Trust(keys).sign(Right.SUBMIT, TEXT)


def test_without_a_keyring_nothing_is_signed(keys: Path) -> None:
    assert NO_TRUST.sign(Right.HANDOFF, TEXT) == ""
    with pytest.raises(UserError, match="HANDOFF_SIGNING_KEY needs HANDOFF_KEYS"):
        Trust(None, find_private_key_file(keys, "client"))


def test_a_wrong_file_of_keys_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read .* `handoff keys init DIR`"):
        Trust(tmp_path / "nothing")
    (tmp_path / KEYRING).write_text('{"identities": 7}')
    (tmp_path / KEYRING).chmod(0o644)
    with pytest.raises(
        UserError, match=r"is not a file of public keys: Keyring: identities.*: name the"
    ):
        Trust(tmp_path)
    make_keys(tmp_path / "good")
    (tmp_path / "broken.key").write_bytes(b"no key")
    (tmp_path / "broken.key").chmod(0o600)
    with pytest.raises(UserError, match="has no private key of Ed25519"):
        Trust(tmp_path / "good", tmp_path / "broken.key").sign(Right.SUBMIT, TEXT)


def test_a_keyring_that_breaks_while_a_process_runs_changes_nothing(keys: Path) -> None:
    reader = Trust(keys)
    signature = trust_of(keys, "supervisor").sign(Right.HANDOFF, TEXT)
    (keys / KEYRING).write_text("{")
    unknown = "0" * 16 + signature[16:]
    with pytest.raises(UntrustedMessage, match="unknown key"):
        reader.check(Right.HANDOFF, unknown, TEXT)
    assert reader.check(Right.HANDOFF, signature, TEXT).name == "supervisor"
