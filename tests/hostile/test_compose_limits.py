"""Each container of the Compose file has a limited share of the machine."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_compose_file import SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_each_container_has_a_limit_of_processes(service: str) -> None:
    assert 0 < SERVICES[service]["pids_limit"] <= 4096


@pytest.mark.parametrize("service", sorted({*SERVICES} - {"redis"}))
def test_each_container_without_redis_has_a_limit_of_memory(service: str) -> None:
    assert SERVICES[service]["mem_limit"] == "${PROCESS_MEMORY:-2g}"


def test_redis_refuses_writes_before_the_memory_of_the_machine_is_full() -> None:
    command = SERVICES["redis"]["command"]

    assert re.search(r"--maxmemory \$\{REDIS_MAXMEMORY:-\d+gb\}", command)
    assert "--maxmemory-policy noeviction" in command
    assert "--client-output-buffer-limit normal 512mb 256mb 60 --maxmemory-clients 1gb" in command
