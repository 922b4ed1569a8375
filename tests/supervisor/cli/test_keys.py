"""`handoff keys init` brings the keys of an older version up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.trust.key_files import keyring_file, make_keys, read_keyring
from handoff_queue.shared.trust.keyring import CLIENT, Keyring, Right
from handoff_queue.supervisor.cli.commands import load_command


def test_a_second_init_prints_the_rights_that_it_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_keys(tmp_path)
    identities = dict(read_keyring(keyring_file(tmp_path)).identities)
    identities[CLIENT] = identities[CLIENT].model_copy(update={"may": (Right.SUBMIT,)})
    keyring_file(tmp_path).write_text(Keyring(identities=identities).to_json())

    load_command("keys").main(["init", str(tmp_path)], standalone_mode=False)

    assert capsys.readouterr().out == "client may also sign approve, cancel, retry, say\n"
