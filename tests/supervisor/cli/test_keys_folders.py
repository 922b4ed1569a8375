"""`handoff keys init --folders` writes a folder for each kind of process."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.trust.key_files import read_keyring, read_private_keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.commands import load_command

REDIS = ("--redis", "redis://redis:6379/0")
POD = 10_001
"""User and group of the processes of a pod."""
POOL = ("--specialist", "experts=legal,medical", "--specialist", "analyst")


def init(folder: Path, *options: str) -> None:
    load_command("keys").main(["init", str(folder), *options], standalone_mode=False)


def test_a_folder_has_the_files_of_one_kind_of_process(tmp_path: Path) -> None:
    init(tmp_path, *REDIS, *POOL, "--folders")

    folders = {path.name: path for path in tmp_path.iterdir() if path.is_dir()}
    assert set(folders) == {
        *("client", "console", "flower", "observer", "redis", "supervisor"),
        *("worker-analyst", "worker-experts"),
    }
    for name in ("supervisor", "worker-experts"):
        folder = folders[name]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {file.name for file in folder.iterdir()} == {
            "keyring.json",
            "redis-url",
            "signing.key",
        }
        assert (folder / "redis-url").read_text().startswith(f"redis://{name}:")
        assert (folder / "signing.key").read_text() == (tmp_path / f"{name}.key").read_text()
    assert not (folders["flower"] / "signing.key").exists()
    assert [file.name for file in folders["redis"].iterdir()] == ["users.acl"]
    assert (folders["redis"] / "users.acl").stat().st_mode & 0o004, "Redis is another user"


def test_no_program_logs_in_as_the_user_that_reads_the_append_only_file(tmp_path: Path) -> None:
    """Redis 7.0 drops each transaction that the user `default` may not run. `test_compose.py`
    restarts a Redis that has data.
    """
    init(tmp_path, *REDIS)

    first = (tmp_path / "users.acl").read_text().splitlines()[0]
    assert first == "user default off ~* &* +@all"


def test_a_pool_has_one_key_for_all_its_specialists(tmp_path: Path) -> None:
    init(tmp_path, *POOL)

    identities = read_keyring(tmp_path / "keyring.json").identities
    assert identities["worker-experts"].specialists == ("legal", "medical")
    assert identities["worker-analyst"].specialists == ("analyst",)


def test_only_workers_that_may_have_the_memory_may_use_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "librarian.md").write_text(
        "---\nname: librarian\ndescription: Keeps facts.\ntools: [memory]\n---\n"
        "You keep facts in the notes.\n"
    )
    monkeypatch.setenv("HANDOFF_SPECIALISTS_DIRS", str(tmp_path / "own"))

    # no file is known for `orders`
    init(tmp_path / "keys", *REDIS, *POOL, "--specialist", "librarian", "--specialist", "orders")

    users: set[str] = set()
    for line in (tmp_path / "keys" / "users.acl").read_text().splitlines():
        name = line.split()[1]
        if name.startswith("worker") and keys.notes("*") in line:
            users.add(name)
    assert users == {"worker-librarian", "worker-orders"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--folders"], "--folders needs --redis URL"),
        (["--specialist", "experts="], "--specialist 'experts=': name a specialist"),
        (
            ["--specialist", "experts=legal,No Name"],
            "a name must be lower-case letters",
        ),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, options: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        init(tmp_path, *options)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root")
@pytest.mark.parametrize(("mode", "is_refused"), [(0o440, False), (0o444, True), (0o460, True)])
def test_the_group_of_a_pod_may_read_a_key_of_root(*, mode: int, is_refused: bool) -> None:
    """Kubernetes gives the files of a Secret to root and to the group of the pod."""
    with TemporaryDirectory() as name, ExitStack() as cleanup:
        folder = Path(name)
        init(folder)
        folder.chmod(0o755)
        key = folder / "client.key"
        os.chown(key, 0, POD)
        key.chmod(mode)
        if is_refused:
            cleanup.enter_context(pytest.raises(UserError, match="other users can read"))
        cleanup.callback(os.setegid, os.getegid())
        os.setegid(POD)
        cleanup.callback(os.seteuid, 0)
        os.seteuid(POD)
        read_private_keys(key)
