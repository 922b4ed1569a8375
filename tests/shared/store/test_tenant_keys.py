"""Sources of keys: files that are read again, and a function whose keys are kept for a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import tenant_keys
from handoff_queue.shared.store.encryption_at_rest import Sealing
from handoff_queue.shared.store.tenant_keys import KeyFiles, KeyHook, open_tenant_keys
from handoff_queue.shared.types.errors import NoTenantKey, UserError
from tests.doubles.tenant_keys import new_key, write_keys


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make changed files visible at once."""
    monkeypatch.setattr(tenant_keys, "CHECK_FILE_S", 0.0)


@pytest.fixture
def our_keys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module whose function `keys_of` notes its calls."""
    module = ModuleType("our_keys")
    module.calls = []  # type: ignore[attr-defined]
    module.keys = [new_key()]  # type: ignore[attr-defined]

    def keys_of(tenant: str) -> list[bytes]:
        module.calls.append(tenant)
        return list(module.keys)

    module.keys_of = keys_of  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "our_keys", module)
    return module


@pytest.mark.usefixtures("no_pause")
def test_a_running_process_sees_new_changed_and_deleted_files(tmp_path: Path) -> None:
    first, second = new_key(), new_key()
    files = KeyFiles(tmp_path)
    seen = [files.find_keys("acme")]
    file = write_keys(tmp_path, "acme", first)
    seen.append(files.find_keys("acme"))
    write_keys(tmp_path, "acme", second, first)
    seen.append(files.find_keys("acme"))
    file.unlink()
    seen.append(files.find_keys("acme"))

    assert seen == [(), (first,), (second, first), ()]


def test_the_name_of_a_file_is_percent_encoded(tmp_path: Path) -> None:
    key = new_key()
    write_keys(tmp_path, "a%2Fb%20c", key)

    assert KeyFiles(tmp_path).find_keys("a/b c") == (key,)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o640, 0o777])
def test_a_file_with_rights_for_others_is_refused(mode: int, tmp_path: Path) -> None:
    write_keys(tmp_path, "acme", new_key()).chmod(mode)

    with pytest.raises(NoTenantKey, match="other users can read the key of a tenant"):
        KeyFiles(tmp_path).find_keys("acme")


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_only_its_owner_can_read_is_accepted(mode: int, tmp_path: Path) -> None:
    key = new_key()
    write_keys(tmp_path, "acme", key).chmod(mode)

    assert KeyFiles(tmp_path).find_keys("acme") == (key,)


def test_a_folder_that_others_can_write_is_refused_with_and_without_a_key(tmp_path: Path) -> None:
    """Otherwise the deleted key of a tenant would end the encryption of its new texts."""
    write_keys(tmp_path, "acme", new_key())
    tmp_path.chmod(0o770)

    for tenant in ("acme", "without"):
        with pytest.raises(NoTenantKey, match="other users can write the folder"):
            KeyFiles(tmp_path).find_keys(tenant)


def test_a_function_is_asked_once_for_each_tenant_until_its_keys_are_too_old(
    our_keys: ModuleType,
) -> None:
    kept, forgotten = KeyHook("our_keys:keys_of", 60), KeyHook("our_keys:keys_of", 0)
    for _ in range(3):
        assert kept.find_keys("acme") == tuple(our_keys.keys)
        kept.find_keys("globex")
    asked = list(our_keys.calls)
    for _ in range(3):
        forgotten.find_keys("acme")

    assert asked == ["acme", "globex"]
    assert our_keys.calls[2:] == ["acme"] * 3


@pytest.mark.parametrize("keys", [["text"], [b"short"], [b"a" * 32] * 9, 7])
def test_wrong_keys_of_a_function_are_one_line_without_the_keys(
    keys: object, our_keys: ModuleType
) -> None:
    our_keys.keys = keys  # type: ignore[attr-defined]

    with pytest.raises(NoTenantKey, match="our_keys:keys_of") as refused:
        KeyHook("our_keys:keys_of", 60).find_keys("acme")

    assert "aaaa" not in str(refused.value)


def test_a_function_that_fails_is_asked_again(our_keys: ModuleType) -> None:
    hook = KeyHook("our_keys:keys_of", 60)
    good, our_keys.keys = our_keys.keys, None  # type: ignore[attr-defined]
    with pytest.raises(NoTenantKey, match=r"has no key of tenant acme now \(TypeError\)"):
        hook.find_keys("acme")
    our_keys.keys = good  # type: ignore[attr-defined]

    assert hook.find_keys("acme") == tuple(good)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tenant_keys": "/nowhere/at/all"}, "is not a folder"),
        ({"tenant_key_function": "no_such_module:f"}, "cannot be imported"),
        ({"tenant_key_function": "os:sep"}, "os:sep is not a function: name"),
        ({"tenant_keys": "/", "tenant_key_function": "os:getcwd"}, "but not both"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        open_tenant_keys(Settings(offline=True, **settings))  # type: ignore[arg-type]


def test_a_function_name_of_another_form_is_refused() -> None:
    for name in ("os", "os:", ":f", "os:f()", "a b:c"):
        with pytest.raises(ValueError, match="must name a function as module:name"):
            Settings(offline=True, tenant_key_function=name)


def test_without_keys_a_text_is_stored_as_it_was() -> None:
    assert open_tenant_keys(Settings(offline=True)) is None
    assert Sealing().seal("j-0123456789ab", "a", b"=text") == b"=text"  # type: ignore[arg-type]


def test_a_key_of_the_environment_is_in_no_error(tmp_path: Path) -> None:
    file = write_keys(tmp_path, "acme", os.urandom(16))

    with pytest.raises(NoTenantKey) as refused:
        KeyFiles(tmp_path).find_keys("acme")

    assert file.read_text().strip() not in str(refused.value)
