"""`handoff up` makes a key for the workers of each role, and keeps it at the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import KEYRING, make_keys
from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.trust.signatures import Trust
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.local_keys import OWN_FOLDER, LocalKeys, prepare_local_keys

RESEARCHERS = {"researcher1": ["researcher"], "others": ["analyst", "writer"]}
ALL: dict[str, list[str]] = {"worker1": [], "worker2": []}


def keys_of(
    home: Path,
    queues: dict[str, list[str]],
    settings: Settings | None = None,
    named: Path | None = None,
    *,
    has_none: bool = False,
) -> LocalKeys:
    settings = settings or Settings(redis_url=None, keys=None)
    return prepare_local_keys(home, settings, queues, named, has_none=has_none)


def trust_of(keys: LocalKeys, process: str) -> Trust:
    """Return the keys that a worker process gets."""
    variables = keys.build_variables(keys.workers[process])
    return Trust(Path(variables["HANDOFF_KEYS"]), Path(variables["HANDOFF_SIGNING_KEY"]))


def files_of(home: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (home / OWN_FOLDER).iterdir()}


def test_a_worker_process_gets_only_the_key_of_its_own_roles(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, RESEARCHERS)

    trust_of(keys, "researcher1").check_worker(["researcher"])
    trust_of(keys, "others").check_worker(["analyst", "writer"])
    with pytest.raises(UserError, match="worker-researcher, which may not work for writer"):
        trust_of(keys, "researcher1").check_worker(["writer"])
    with pytest.raises(UserError, match="worker-others, which may not work for researcher"):
        trust_of(keys, "others").check_worker(["researcher"])


def test_processes_for_all_specialists_share_one_key(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, ALL)
    assert keys.workers == {"worker1": "worker", "worker2": "worker"}
    trust_of(keys, "worker1").check_worker(["writer", "researcher"])


def test_private_keys_have_the_mode_0600_in_a_private_folder(tmp_path: Path) -> None:
    keys_of(tmp_path, RESEARCHERS)
    folder = tmp_path / OWN_FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    private = sorted(folder.glob("*.key"))
    assert [file.stem for file in private] == [
        "client", "console", "supervisor", "worker-others", "worker-researcher",
    ]  # fmt: skip
    assert {file.stat().st_mode & 0o777 for file in private} == {0o600}


def test_the_next_start_keeps_the_keys(tmp_path: Path) -> None:
    keys_of(tmp_path, RESEARCHERS)
    before = files_of(tmp_path)
    (tmp_path / "redis").mkdir()
    keys_of(tmp_path, RESEARCHERS)
    assert files_of(tmp_path) == before


def test_an_identity_never_gets_other_roles(tmp_path: Path) -> None:
    """Results of an earlier start stay valid, because their identity has the same roles."""
    first = keys_of(tmp_path, RESEARCHERS)
    second = keys_of(tmp_path, {"analyst1": ["analyst"], "others": ["researcher", "writer"]})

    assert first.workers["others"] == "worker-others"
    assert second.workers == {"analyst1": "worker-analyst", "others": "worker-others-2"}
    trust_of(first, "others").check_worker(["analyst"])


def test_a_folder_with_a_key_for_all_workers_gets_a_key_for_each_role(tmp_path: Path) -> None:
    make_keys(tmp_path / "named")
    keys = keys_of(tmp_path, RESEARCHERS, named=tmp_path / "named")
    assert keys.workers["researcher1"] == "worker-researcher"
    assert not (tmp_path / OWN_FOLDER).exists()


def test_the_other_terminal_signs_as_a_client(tmp_path: Path) -> None:
    lines = keys_of(tmp_path, ALL).build_lines()
    folder = tmp_path / OWN_FOLDER
    assert lines == [
        f"export HANDOFF_KEYS={folder / KEYRING}",
        f"export HANDOFF_SIGNING_KEY={folder / 'client.key'}",
    ]
    signature = Trust(folder, folder / "client.key").sign(Right.SUBMIT, "a job")
    assert Trust(folder).check(Right.SUBMIT, signature, "a job").name == "client"


def test_a_system_without_keys_has_a_message_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    own_redis = Settings.model_validate({"redis_url": "redis://redis:6379/0", "keys": None})
    for keys, reason in (
        (keys_of(tmp_path, ALL, has_none=True), "(--no-keys)"),
        (keys_of(tmp_path, ALL, own_redis), "handoff up --keys DIR signs them"),
        (keys_of(tmp_path, ALL), "may have open jobs of a start without keys"),
    ):
        assert keys.folder is None
        assert keys.build_lines() == []
        assert keys.build_variables("supervisor") == {"HANDOFF_KEYS": "", "HANDOFF_SIGNING_KEY": ""}
        assert keys.why_none.startswith("messages are not signed")
        assert reason in keys.why_none
    assert not (tmp_path / OWN_FOLDER).exists()


def test_another_file_than_a_keyring_names_no_folder_of_keys(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    (tmp_path / "flow").mkdir()
    workflow = tmp_path / "flow" / "w2.yaml"
    workflow.write_text("steps: []\n")

    with pytest.raises(UserError, match=r"--keys .*w2\.yaml is a file: name a folder"):
        keys_of(tmp_path, ALL, named=workflow)

    assert [file.name for file in workflow.parent.iterdir()] == ["w2.yaml"]
    assert keys_of(tmp_path, ALL, named=tmp_path / "keys" / KEYRING).folder == tmp_path / "keys"


def test_two_contrary_options_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--keys and --no-keys exclude each other"):
        keys_of(tmp_path, ALL, named=tmp_path, has_none=True)
