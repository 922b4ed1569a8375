"""One primary, one replica and three sentinels, each in its own process. A killed primary stays
dead.

With TLS, each process has its own TLS proxy, and clients know only the addresses of the proxies.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import find_server, read_version
from tests import forked_processes
from tests.doubles.tls_proxy import ADDRESS, INSIDE, a_certificate
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
NAME = "the-primary"
DOWN_AFTER_MS = 500
"""A sentinel calls a server down after this silence."""


@dataclass(frozen=True)
class WatchedRedis:
    """A Redis primary with a replica and three sentinels."""

    processes: Processes
    ports: dict[str, int]
    """Ports by name: `redis-1`, `redis-2`, `sentinel-1` and so on."""
    password: str
    sentinel_password: str
    tls_ports: dict[str, int] = field(default_factory=dict)
    """Ports of the TLS proxies, or empty without TLS."""
    tls: str = ""
    """Query string of the URL with the TLS files."""

    @property
    def public_ports(self) -> dict[str, int]:
        """Ports at which clients and the other processes connect."""
        return self.tls_ports or self.ports

    @property
    def url(self) -> str:
        first, *others = (f"{ADDRESS}:{self.public_ports[name]}" for name in self.sentinels)
        options = f"master_name={NAME}&sentinel_password={self.sentinel_password}{self.tls}"
        return ";".join(
            [
                f"sentinel://:{self.password}@{first}/0?{options}",
                *(f"sentinel://{other}" for other in others),
            ]
        )

    @property
    def sentinels(self) -> list[str]:
        return [name for name in self.ports if name.startswith("sentinel")]

    def kill(self, name: str) -> None:
        os.kill(self.processes.get_pids()[name], signal.SIGKILL)

    def wait_for_copy(self) -> None:
        """Wait until the replica has all data of the primary."""
        wait_until(self._is_copied, expected="a whole copy")

    def wait_for_another_primary(self) -> None:
        """Wait until the last sentinel reports the replica as the primary."""
        wait_until(
            lambda: _primary_by(self, self.sentinels[-1])["port"] == self.public_ports["redis-2"],
            expected="another primary",
        )

    def switch(self) -> None:
        """Make the replica the primary without cutting connections, as for maintenance.

        Returns when the sentinels agree.
        """
        self.wait_for_copy()
        with redis.Redis(port=self.ports["redis-1"], password=self.password) as primary:
            primary.execute_command("FAILOVER")
            wait_until(
                lambda: primary.info("replication")["role"] == "slave",
                expected="the end of the old primary's role",
            )
        for name in self.sentinels:
            with redis.Redis(port=self.ports[name], password=self.sentinel_password) as sentinel:
                sentinel.sentinel_remove(NAME)
                sentinel.sentinel_monitor(NAME, ADDRESS, self.public_ports["redis-2"], 2)
                sentinel.sentinel_set(NAME, "auth-pass", self.password)
        wait_until(
            lambda: _primary_by(self, self.sentinels[0])["is_master"],
            expected="sentinels that know the new primary",
        )

    def _is_copied(self) -> bool:
        try:
            with redis.Redis(port=self.ports["redis-1"], password=self.password) as primary:
                return bool(primary.wait(1, 1_000))
        except redis.ConnectionError:
            return False


@contextmanager
def watched_redis(folder: Path, *, tls: bool = False) -> Iterator[WatchedRedis]:
    """Start the processes, and yield when the replica copies and the sentinels know each other."""
    names = ("redis-1", "redis-2", "sentinel-1", "sentinel-2", "sentinel-3")
    with Processes(folder, forked_processes.shared_fork_server()) as processes:
        ports = _free_ports(*names, *(f"tls-{name}" for name in names))
        tls_ports = {name: ports.pop(f"tls-{name}") for name in names}
        watched = WatchedRedis(
            processes,
            ports,
            *_two_passwords(),
            *((tls_ports, _start_tls_proxies(processes, folder, tls_ports, ports)) if tls else ()),
        )
        for name in names:
            if (
                name == "sentinel-1"
            ):  # sentinels look up the replicas when they start, and then every ten seconds
                watched.wait_for_copy()
            _start(watched, folder, name)
        wait_until(
            lambda: all(_knows_all(watched, name) for name in watched.sentinels),
            expected="sentinels that know each other",
        )
        yield watched


def _start_tls_proxies(
    processes: Processes, folder: Path, tls_ports: dict[str, int], ports: dict[str, int]
) -> str:
    """Start the proxies, and return the TLS part of the URL.

    Sentinels publish addresses, so the certificate names the address.
    """
    certificate, key = a_certificate(folder, "redis", f"IP:{ADDRESS}")
    pairs = [f"{tls_ports[name]}:{port}" for name, port in ports.items()]
    command = [sys.executable, "-m", "tests.doubles.tls_proxy", str(certificate), str(key), *pairs]

    def is_ready() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((ADDRESS, list(tls_ports.values())[-1])) == 0

    processes.start(
        ChildSpec(
            "tls-proxies", command, {"PYTHONPATH": str(ROOT)}, is_ready=is_ready, ends_last=True
        )
    )
    processes.wait_until_ready()
    return f"&ssl=true&ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"


def _start(watched: WatchedRedis, folder: Path, name: str) -> None:
    data = folder / name
    data.mkdir()
    is_sentinel = name.startswith("sentinel")
    lines = _sentinel_options(watched) if is_sentinel else _redis_options(watched, name)
    file = data / "redis.conf"
    file.write_text(
        "\n".join(
            [f"port {watched.ports[name]}", *_bind_options(watched), f"dir {data}", *lines, ""]
        )
    )
    command = [str(find_server()), str(file), *(["--sentinel"] if is_sentinel else [])]
    watched.processes.start(
        ChildSpec(name, command, is_ready=lambda: True, restart=False, ends_last=True)
    )


def _bind_options(watched: WatchedRedis) -> list[str]:
    """Return options that bind one address: before version 7, a server with several addresses
    connects from the first.
    """
    if not watched.tls_ports:
        return [f"bind {ADDRESS}"]
    return [
        f"bind {INSIDE} {ADDRESS}",
        *([f"bind-source-addr {INSIDE}"] if read_version(find_server()) >= (7,) else []),
    ]


def _redis_options(watched: WatchedRedis, name: str) -> list[str]:
    passwords = [f"requirepass {watched.password}", f"masterauth {watched.password}"]
    announced = [
        f"replica-announce-ip {ADDRESS}",
        f"replica-announce-port {watched.public_ports[name]}",
    ]
    replication = (
        [f"replicaof {ADDRESS} {watched.public_ports['redis-1']}"] if name != "redis-1" else []
    )
    return [
        'save ""',
        "repl-diskless-sync yes",
        "repl-diskless-sync-delay 0",
        *passwords,
        *announced,
        *replication,
    ]


def _sentinel_options(watched: WatchedRedis) -> list[str]:
    return [
        f"requirepass {watched.sentinel_password}",
        f"sentinel sentinel-pass {watched.sentinel_password}",
        f"sentinel monitor {NAME} {ADDRESS} {watched.public_ports['redis-1']} 2",
        f"sentinel auth-pass {NAME} {watched.password}",
        f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {NAME} 2000",
    ]


def _knows_all(watched: WatchedRedis, sentinel: str) -> bool:
    try:
        primary = _primary_by(watched, sentinel)
    except redis.ConnectionError:
        return False
    return bool(primary["num-slaves"] == 1 and primary["num-other-sentinels"] == 2)


def _primary_by(watched: WatchedRedis, sentinel: str) -> dict[str, Any]:
    """Return the sentinel's view of the primary."""
    with redis.Redis(port=watched.ports[sentinel], password=watched.sentinel_password) as client:
        primary: dict[str, Any] = client.sentinel_master(NAME)
        return primary


def _two_passwords() -> tuple[str, str]:
    return f"canary-{secrets.token_hex(8)}", f"canary-{secrets.token_hex(8)}"


def _free_ports(*names: str) -> dict[str, int]:
    """Return a free port for each name. All sockets stay bound until the end, so ports differ."""
    with ExitStack() as sockets:
        ports = {}
        for name in names:
            probe = sockets.enter_context(socket.socket())
            probe.bind((ADDRESS, 0))
            ports[name] = int(probe.getsockname()[1])
        return ports
