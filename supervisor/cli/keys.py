"""`handoff keys`: make, list and rotate the keys that sign messages, and print the secrets that
sign webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import typer

from handoff_queue.shared.local.process_key_folders import write_process_folders
from handoff_queue.shared.local.redis_users import USERS_FILE, WORKER, get_url_file, write_users
from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.placeholder_passwords import load_process_settings
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.trust.key_files import (
    KEYRING,
    find_keyring_file,
    find_private_key_file,
    make_keys,
    read_keyring,
    rotate_key,
)
from handoff_queue.shared.trust.keyring import name_worker_identity
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import NAME_PATTERN, NAME_RULE
from handoff_queue.supervisor.cli.display.terminal import print_message, write_as_json, write_line
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.cli.supervisor_and_worker import (
    list_specialist_names,
    list_specialists_without_memory,
)
from handoff_queue.supervisor.client.argument_types import check_tenant
from handoff_queue.supervisor.engine.webhooks import derive_tenant_secret


class KeysAction(StrEnum):
    """Actions of `handoff keys`."""

    INIT = "init"
    LIST = "list"
    ROTATE = "rotate"
    WEBHOOK = "webhook"


def keys(
    action: Annotated[
        KeysAction, typer.Argument(metavar="ACTION", help="init, list, rotate or webhook.")
    ] = KeysAction.LIST,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBJECT",
            help="The folder (DIR) of `init` and `list`, the IDENTITY whose key `rotate` replaces,"
            " or the TENANT whose secret `webhook` prints.",
        ),
    ] = None,
    specialist: Annotated[
        list[str],
        typer.Option(
            metavar="SPECIALIST",
            help="Make a key for the workers of this specialist. NAME=SPECIALIST,SPECIALIST makes"
            " a key for workers of several specialists. Repeatable. Default: one key for all"
            " workers.",
        ),
    ] = [],  # noqa: B006
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Make Redis users, too: `users.acl` for the Redis at this address, and a URL for"
            " each kind of process.",
        ),
    ] = None,
    folders: Annotated[
        bool,
        typer.Option(
            "--folders",
            help="Write a folder for each kind of process, too, with the files that it reads."
            " Needs --redis.",
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="DIR", help="The folder of the keys. Default: HANDOFF_KEYS."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Make the keys that sign messages, and the users of Redis.

    Each kind of process signs with its own private key. All processes read one file of public
    keys. `webhook` prints the secret with which a receiver of a tenant checks webhooks.

    handoff keys init ./keys --redis redis://redis.internal:6379/0

    handoff keys list ./keys

    handoff keys rotate supervisor --keys ./keys
    """  # fmt: skip
    if (specialist or redis is not None or folders) and action is not KeysAction.INIT:
        raise UserError("only `handoff keys init` takes --specialist, --redis and --folders")
    if folders and redis is None:
        raise UserError("--folders needs --redis URL")
    if as_json and action is not KeysAction.LIST:
        raise UserError("only `handoff keys list` takes --json")
    _check_subject_and_folder(action, subject, folder)
    match action:
        case KeysAction.INIT:
            if subject is None:
                raise UserError(
                    "`handoff keys init` needs a DIR for the keys, as in `handoff keys init ./keys`"
                )
            _init(Path(subject), _parse_workers(specialist), redis, with_folders=folders)
        case KeysAction.LIST:
            keys_folder = _get_folder(folder or _check_path(subject))
            _print_list(find_keyring_file(keys_folder), as_json=as_json)
        case KeysAction.ROTATE:
            if subject is None:
                raise UserError("`handoff keys rotate` needs an IDENTITY (see `handoff keys list`)")
            _rotate(_get_folder(folder), subject)
        case KeysAction.WEBHOOK:
            if subject is None:
                raise UserError(
                    "`handoff keys webhook` needs a TENANT, as in `handoff keys webhook acme`"
                )
            _print_webhook_secret(subject)
        case _:
            assert_never(action)
    return OK


def _check_subject_and_folder(action: KeysAction, subject: str | None, folder: Path | None) -> None:
    if subject is not None and not subject.strip():
        raise UserError(
            "the SUBJECT is empty: name the folder of the keys, an identity or a tenant"
        )
    if folder is None:
        return
    if action is KeysAction.INIT:
        raise UserError(
            "`handoff keys init` takes no --keys: name the folder alone, as in"
            " `handoff keys init ./keys`"
        )
    if action is KeysAction.LIST and subject is not None:
        raise UserError("name the folder of the keys once: as DIR, or with --keys")
    if action is KeysAction.WEBHOOK:
        raise UserError("`handoff keys webhook` takes no --keys: it reads no key")


def _check_path(subject: str | None) -> Path | None:
    return None if subject is None else Path(subject)


def _get_folder(keys_folder: Path | None) -> Path:
    """Return the folder of the keys: the named one, or the one of HANDOFF_KEYS.

    Raises:
        UserError: no folder is named.
    """
    folder = keys_folder or load_settings().keys
    if folder is None:
        raise UserError("name the folder of the keys with --keys, or set HANDOFF_KEYS")
    return expand_folder(folder, "HANDOFF_KEYS")


def _parse_workers(options: Sequence[str]) -> dict[str, list[str]]:
    """Return the specialists of each kind of worker, by its name.

    Args:
        options: values of `--specialist`: SPECIALIST, or NAME=SPECIALIST,SPECIALIST.

    Raises:
        UserError: a name is wrong.
    """
    workers: dict[str, list[str]] = {}
    for option in options:
        name, _, list_text = option.partition("=")
        specialists = [name]
        if "=" in option:
            specialists = list_text.split(",")
        for text in (name, *specialists):
            if not re.fullmatch(NAME_PATTERN, text):
                raise UserError(
                    f"--specialist {option[:64]!r}: name a specialist; a name must be {NAME_RULE}"
                )
        workers[name] = specialists
    return workers


def _init(
    keys_folder: Path,
    workers: Mapping[str, Sequence[str]],
    redis: str | None,
    *,
    with_folders: bool,
) -> None:
    """Make the keys in a folder, and the users of Redis if its address is given.

    Args:
        workers: the specialists of each kind of worker, by its name.
        redis: address of Redis.
        with_folders: make a folder for each kind of process, too.
    """
    folder = expand_folder(keys_folder, "DIR").resolve()
    if redis is not None:
        try:
            read_address(redis)
        except ValueError as error:
            raise UserError(f"--redis: {error}") from None
    names = make_keys(folder, pools=workers)
    for name in names:
        write_line(f"{name}  {find_private_key_file(folder, name)}")
    print_message(
        f"{len(names)} keys made. Set HANDOFF_KEYS={folder} in all processes, and"
        " HANDOFF_SIGNING_KEY to the key of each kind of process"
    )
    if redis is None:
        return
    users = _write_redis_users(folder, redis, workers)
    if with_folders:
        for process_folder in write_process_folders(folder, users):
            write_line(f"{process_folder.name}  {process_folder}")


def _write_redis_users(
    folder: Path, address: str, workers: Mapping[str, Sequence[str]]
) -> list[str]:
    """Write the Redis users: one for each kind of worker, or one for all workers. Return their
    names.
    """
    served = {name_worker_identity(name): specialists for name, specialists in workers.items()}
    settings = load_settings()
    if not workers:
        served = {WORKER: list_specialist_names(settings)}
    users = write_users(folder, address, served, list_specialists_without_memory(settings))
    for name in users:
        write_line(f"{name}  {get_url_file(folder, name)}")
    print_message(
        f"{folder / USERS_FILE} has the users: name it in `aclfile` of Redis, or load it with ACL"
        " LOAD. Set HANDOFF_REDIS_URL_FILE to the URL file of each kind of process"
    )
    return users


def _print_list(file: Path, *, as_json: bool) -> None:
    keyring = read_keyring(file)
    if as_json:
        write_as_json(keyring.model_dump(mode="json"))
        return
    for name, identity in keyring.identities.items():
        of_specialists = f" for {', '.join(identity.specialists)}" if identity.specialists else ""
        write_line(f"{name} may sign {', '.join(identity.may)}{of_specialists}")
        for key in identity.keys:
            write_line(f"  {key.id}  made {key.created_at:%Y-%m-%d %H:%M} UTC")


def _rotate(folder: Path, name: str) -> None:
    """Give an identity a new key.

    Args:
        folder: folder of the keys, or the file of its keyring.
    """
    if folder.name == KEYRING:
        folder = folder.parent
    key = rotate_key(folder, name)
    write_line(f"{name} signs with {key.id} from now on")
    print_message(
        "the key before it stays valid until the next rotation. On other hosts, copy keyring.json"
        f" first, and {name}.key after it"
    )


def _print_webhook_secret(tenant: str) -> None:
    """Print the secret that signs the webhooks of a tenant."""
    check_tenant(tenant)
    secret = load_process_settings().webhook_secret
    if secret is None:
        raise UserError(
            "HANDOFF_WEBHOOK_SECRET is not set: set it to the secret of the supervisors, from"
            " which the secret of each tenant follows"
        )
    write_line(derive_tenant_secret(secret.get_secret_value(), tenant))
