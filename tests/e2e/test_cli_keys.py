"""`handoff keys` makes, lists and rotates keys, and prints the secrets of webhooks.
`handoff up --keys` runs a system that signs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import find_server
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.trust.key_files import build_key_variables, find_private_key_file
from handoff_queue.supervisor.cli.console_process import has_server
from handoff_queue.supervisor.engine.webhooks import derive_tenant_secret
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, error_line, interrupt
from tests.e2e.fleets import WEBHOOK_SECRET

pytestmark = pytest.mark.slow


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


def exported(handoff: Handoff) -> dict[str, Any]:
    """Return the variables that `handoff up` prints for the other terminal."""
    lines = re.findall(r"^export (\w+)=(\S+)$", handoff.read("out"), re.MULTILINE)
    return dict(lines)


def test_keys_are_made_listed_and_rotated(handoff: Handoff) -> None:
    made = handoff.run("keys", "init", "keys", "--specialist", "researcher")
    assert made.returncode == 0, made.stderr
    listed = handoff.run("keys", "list", "keys", "--json")
    before = json.loads(listed.stdout)["identities"]
    assert set(before) == {"client", "console", "supervisor", "worker-researcher"}

    rotated = handoff.run("keys", "rotate", "worker-researcher", HANDOFF_KEYS="keys")

    assert rotated.returncode == 0, rotated.stderr
    after = json.loads(handoff.run("keys", "list", "keys", "--json").stdout)["identities"]
    new, old = after["worker-researcher"]["keys"]
    assert [old] == before["worker-researcher"]["keys"]
    assert f"worker-researcher signs with {new['id']} from now on" in rotated.stdout
    assert "worker-researcher may sign result, announce for researcher" in (
        handoff.run("keys", "list", "keys").stdout
    )


def test_the_operator_prints_the_webhook_secret_of_a_tenant(handoff: Handoff) -> None:
    printed = handoff.run("keys", "webhook", "acme", HANDOFF_WEBHOOK_SECRET=WEBHOOK_SECRET)

    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == f"{derive_tenant_secret(WEBHOOK_SECRET, 'acme')}\n"


@pytest.fixture
def redis_port(handoff: Handoff) -> Iterator[int]:
    """Make users, start a Redis that has them, and return its port."""
    port = find_free_port()
    address = f"redis://127.0.0.1:{port}/0"
    for roles in (
        ["--specialist", "analyst"],
        ["--specialist", "analyst", "--specialist", "writer"],
    ):
        made = handoff.run("keys", "init", "keys", *roles, "--redis", address)
        assert made.returncode == 0, made.stderr
    folder = handoff.folder / "keys"
    options = [f"--port {port}", "--bind 127.0.0.1", "--save ''", f"--aclfile {folder}/users.acl"]
    command = [str(find_server()), *shlex.split(" ".join(options))]
    with Processes(handoff.folder) as processes:
        processes.start(ChildSpec("redis", command, is_ready=lambda: has_server(port)))
        processes.wait_until_ready()
        yield port


def test_redis_takes_the_users_that_were_made(handoff: Handoff, redis_port: int) -> None:
    def user(name: str) -> str:
        return f"keys/{name}.redis-url"

    listed = handoff.run("list", HANDOFF_REDIS_URL_FILE=user("client"))
    assert listed.returncode == 0, listed.stderr
    audit = handoff.run("audit", HANDOFF_REDIS_URL_FILE=user("client"))
    assert "No permissions" in audit.stderr
    paused = handoff.run("pause", "analyst", HANDOFF_REDIS_URL_FILE=user("admin"))
    assert paused.returncode == 0, paused.stderr
    with redis.Redis.from_url(
        (handoff.folder / user("worker-writer")).read_text().strip()
    ) as connection:
        assert connection.llen("writer") == 0
        with pytest.raises(NoPermissionError):
            connection.llen("analyst")
    with (
        redis.Redis(port=redis_port) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.get("handoff:caps")


def test_a_missing_url_file_is_one_line(handoff: Handoff) -> None:
    refused = handoff.run("list", HANDOFF_REDIS_URL_FILE="nothing")

    line = error_line(refused, BAD_INPUT)
    assert "HANDOFF_REDIS_URL_FILE: nothing cannot be read" in line


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["list"], "name the folder of the keys with --keys, or set HANDOFF_KEYS"),
        (["init"], "`handoff keys init` needs a DIR for the keys, as in `handoff keys init"),
        (["init", "--keys", "more"], "takes no --keys: name the folder alone, as in `handoff"),
        (["list", "keys", "--keys", "keys"], "name the folder of the keys once"),
        (["rotate", "--keys", "keys"], "`handoff keys rotate` needs an IDENTITY"),
        (["rotate", "nobody", "--keys", "keys"], "there is no identity 'nobody'"),
        (["list", "--keys", "nothing"], "cannot be read"),
        (["init", "more", "--specialist", "No Name"], "--specialist 'No Name': name a specialist"),
        (
            ["list", "keys", "--specialist", "researcher"],
            "only `handoff keys init` takes --specialist",
        ),
        (["init", "more", "--redis", "redis://h:x/0"], "--redis: its port must be a number"),
        (["webhook"], "`handoff keys webhook` needs a TENANT, as in `handoff keys webhook acme`"),
        (["webhook", "acme", "--keys", "keys"], "`handoff keys webhook` takes no --keys"),
        (["webhook", "acme"], "HANDOFF_WEBHOOK_SECRET is not set"),
        (["webhook", "a\tb"], "the tenant's name must be one line"),
    ],
)
def test_a_wrong_call_is_an_error_of_one_line(
    handoff: Handoff, arguments: list[str], reason: str
) -> None:
    assert handoff.run("keys", "init", "keys").returncode == 0
    assert reason in error_line(handoff.run("keys", *arguments), BAD_INPUT)


def test_a_system_with_keys_runs_a_job_and_refuses_a_client_without_a_key(
    handoff: Handoff,
) -> None:
    up = ("up", "--keys", "keys", "--serve-port", str(find_free_port()))
    with handoff.started(*up) as system:
        handoff.wait_for_text("Ctrl-C stops everything")
        variables = exported(handoff)
        assert "messages are not signed" not in handoff.read("err")
        assert Path(variables["HANDOFF_SIGNING_KEY"]).name == "client.key"

        job = handoff.run("run", REQUEST, "--docs", str(DOCUMENTS), "--json", **variables)
        assert json.loads(job.stdout)["status"] == "ok", job.stderr
        doctor = handoff.run("doctor", **variables).stdout
        assert "signatures: this shell signs as client" in doctor
        dead = handoff.run("dead", "--json", **variables)
        assert json.loads(dead.stdout) == []

        without_key = {**variables, "HANDOFF_SIGNING_KEY": ""}
        refused = handoff.run("submit", REQUEST, **without_key)
        assert "this process has no key to sign with" in error_line(refused, BAD_INPUT)
        assert interrupt(system) == 0


def test_a_worker_with_the_key_of_another_role_does_not_start(handoff: Handoff) -> None:
    assert handoff.run("keys", "init", "keys", "--specialist", "researcher").returncode == 0
    key = find_private_key_file(handoff.folder / "keys", "worker-researcher")
    refused = handoff.run(
        *("worker", "analyst"),
        HANDOFF_REDIS_URL="redis://127.0.0.1:1/0",
        HANDOFF_KEYS=str(handoff.folder / "keys"),
        HANDOFF_SIGNING_KEY=str(key),
    )
    assert "worker-researcher, which may not work for analyst" in refused.stderr
    assert refused.returncode != 0


def test_a_worker_in_the_shell_of_a_client_says_that_it_takes_its_own_key(handoff: Handoff) -> None:
    assert handoff.run("keys", "init", "keys").returncode == 0
    keys = handoff.folder / "keys"
    variables = build_key_variables(keys, "client")
    url = "redis://127.0.0.1:1/0"

    for command in (("worker", "analyst"), ("supervisor",)):
        own = find_private_key_file(keys, command[0])
        with handoff.started(*command, HANDOFF_REDIS_URL=url, **variables):
            handoff.wait_for_text(
                f"handoff: HANDOFF_SIGNING_KEY is the key of client: the {command[0]} signs with"
                f" {own}\n"
            )


def test_no_private_key_is_in_a_log_or_an_argument(handoff: Handoff) -> None:
    up = ("up", "--keys", "keys", "--no-serve")
    with handoff.started(*up) as system:
        handoff.wait_for_text("Ctrl-C stops everything")
        assert interrupt(system) == 0
    secrets: list[str] = []
    for file in sorted((handoff.folder / "keys").glob("*.key")):
        secrets += file.read_text().splitlines()[1:-1]
    logs = [file.read_text() for file in (handoff.folder / ".handoff" / "logs").glob("*.log")]
    assert secrets
    assert logs
    for text in (*logs, handoff.read("out"), handoff.read("err")):
        assert not [secret for secret in secrets if secret in text]
