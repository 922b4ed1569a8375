"""docker-compose.yml hands each service the settings that docs/reference/settings.md says it reads,
and no others.
"""

from __future__ import annotations

import re
import textwrap
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generator.settings import GROUPS, get_variable
from handoff_queue.shared.trust.key_files import read_keyring
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.flower import OPTIONS
from tests.docs.pages import ROOT, sections, text_of

FILE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
WORKERS = {
    name for name, service in SERVICES.items() if service.get("command", [""])[0] == "worker"
}
NO_AGENTS = ("console", "flower", "keys", "redis")
READ_BY = {
    get_variable(name): processes for group in GROUPS.values() for name, processes in group.items()
}
ABOUT_FOLDERS = {
    "HANDOFF_SPECIALISTS_DIRS",
    "HANDOFF_TOOLS_DIRS",
    "HANDOFF_CACHE_DIR",
    "HANDOFF_GATES",
    "HANDOFF_POLICY_FILE",
    "HANDOFF_TENANT_CREDENTIAL_FUNCTION",
    "HANDOFF_TENANT_KEYS",
    "HANDOFF_TENANT_KEY_FUNCTION",
    "HANDOFF_TENANT_KEY_CACHE_S",
}
"""They name places in the container, so they come with a volume: in an override, or in the image.
"""
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")


def readers(variable: str) -> set[str]:
    """The services that read a setting."""
    processes = READ_BY[variable]
    services: set[str] = set()
    if "workers" in processes or processes == "all":
        services |= WORKERS
    if "supervisor" in processes or processes == "all":
        services.add("supervisor")
    if "client" in processes or "`handoff serve`" in processes or processes == "all":
        services.add("console")
    return services


def given(service: str) -> dict[str, str]:
    environment: dict[str, str] = SERVICES[service].get("environment", {})
    return environment


def test_the_compose_file_has_the_known_services() -> None:
    assert set(SERVICES) == {"supervisor", *WORKERS, *NO_AGENTS}
    assert len(WORKERS) == 6


@pytest.mark.parametrize("variable", sorted(set(READ_BY) - ABOUT_FOLDERS))
def test_a_setting_only_reaches_the_services_that_read_it(variable: str) -> None:
    reached = {name for name in SERVICES if variable in given(name)}

    assert reached - {"flower"} == readers(variable)
    of_flower = {"HANDOFF_REDIS_URL", "HANDOFF_REDIS_URL_FILE", "HANDOFF_LOG_LEVEL"}
    assert "flower" not in reached or variable in of_flower


@pytest.mark.parametrize("service", NO_AGENTS)
def test_services_without_agents_get_no_key_of_a_model_and_no_secret_but_their_own(
    service: str,
) -> None:
    own = {
        "console": {"HANDOFF_REDIS_URL", "HANDOFF_KEYS", "HANDOFF_SIGNING_KEY"},  # files of keys
        "flower": {"FLOWER_BASIC_AUTH", "HANDOFF_REDIS_URL"},
        "keys": set(),
        "redis": set(),
    }[service]
    secrets = {name for name in given(service) if SECRET.search(name)}

    assert secrets <= own
    assert not {
        name for name, value in given(service).items() if name not in own and SECRET.search(value)
    }
    assert not {name for name in given(service) if name.startswith("ANTHROPIC_")}


def test_only_redis_shares_a_network_with_the_supervisor_and_the_workers() -> None:
    networks = {name: set(service.get("networks", [])) for name, service in SERVICES.items()}

    assert SERVICES["keys"]["network_mode"] == "none"
    assert {name for name in networks if "agents" in networks[name]} == {
        "redis",
        "supervisor",
        *WORKERS,
    }
    assert {name for name in networks if "web" in networks[name]} == {"redis", "console", "flower"}
    assert set(FILE["networks"]) == {"agents", "web"}


def test_flower_starts_as_in_handoff_up_and_keeps_its_state_in_its_own_folder() -> None:
    command, (mount, _keys) = SERVICES["flower"]["command"], SERVICES["flower"]["volumes"]

    assert command[-len(OPTIONS) :] == list(OPTIONS)
    assert "--db=/var/lib/flower/state" in command
    assert mount == "flower-data:/var/lib/flower"
    assert [
        name for name, service in SERVICES.items() if "flower-data" in str(service.get("volumes"))
    ] == ["flower"]
    assert (
        "install -d -o handoff -g handoff -m 700 /var/lib/flower"
        in (ROOT / "Dockerfile").read_text()
    )


def test_a_process_has_ten_minutes_for_its_start() -> None:
    checks = [SERVICES[name]["healthcheck"] for name in ("console", "flower")]

    assert [check["start_period"] for check in checks] == ["600s", "600s"]
    assert "HEALTHCHECK --interval=5s --timeout=5s --start-period=600s" in (
        (ROOT / "Dockerfile").read_text()
    )


def test_the_console_listens_beyond_its_container_and_stays_closed_until_there_is_a_token() -> None:
    console = SERVICES["console"]

    assert console["command"] == ["serve", "--host", "0.0.0.0", "--wait-for-token"]
    assert "/healthz" in console["healthcheck"]["test"][-1]


def test_the_broker_of_the_host_is_the_supervisors() -> None:
    holders = [name for name in SERVICES if "ON_END_BROKER_URL" in str(SERVICES[name])]
    assert holders == ["supervisor"]


def test_the_webhook_secret_is_the_supervisors() -> None:
    assert [name for name in SERVICES if "WEBHOOK_SECRET" in str(SERVICES[name])] == ["supervisor"]


def test_no_value_of_a_setting_is_fixed_but_where_it_must_be() -> None:
    fixed = {
        name for service in SERVICES for name, value in given(service).items() if "${" not in value
    }

    assert fixed == {"HANDOFF_REDIS_URL_FILE", "HANDOFF_KEYS", "HANDOFF_SIGNING_KEY"}


def test_the_environment_file_names_every_setting_that_compose_takes() -> None:
    taken = {
        name
        for text in [(ROOT / "docker-compose.yml").read_text()]
        for name in re.findall(r"\$\{([A-Z_]+)", text)
    }
    named = set(
        re.findall(r"^(?:# )?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    )

    assert named == taken


def mounted_keys(service: str) -> list[str]:
    """Return the folders of the volume of keys that a service mounts."""
    folders: list[str] = []
    for mount in SERVICES[service].get("volumes", []):
        if "keys" in str(mount):
            assert mount["read_only"] is True
            folders.append(mount["volume"]["subpath"])
    return folders


def test_each_service_mounts_the_folder_of_its_own_redis_user_and_no_other(tmp_path: Path) -> None:
    arguments = SERVICES["keys"]["command"].replace(" ${OWN_SPECIALISTS:-}", "").split()
    arguments[arguments.index("init") + 1] = str(tmp_path)
    load_command("keys").main(arguments[1:], standalone_mode=False)
    made = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    mounted = {name: mounted_keys(name) for name in SERVICES if name != "keys"}

    assert mounted == {
        **{name: [f"worker-{name}"] for name in WORKERS},
        **{name: [name] for name in ("supervisor", "console", "flower", "redis")},
    }
    assert made == {*(folder for (folder,) in mounted.values()), "client", "observer"}
    keyring = read_keyring(tmp_path / "keyring.json").identities
    for name in WORKERS:
        served = SERVICES[name]["command"][1:-2]
        assert keyring[f"worker-{name}"].specialists == tuple(served)


def writable_volumes(service: dict[str, Any]) -> list[str]:
    """Return the volumes that a service may write."""
    names: list[str] = []
    for mount in service.get("volumes", []):
        if isinstance(mount, str):
            names.append(mount.partition(":")[0])
        elif not mount.get("read_only"):
            names.append(mount["source"])
    return names


def test_no_two_services_write_the_same_volume_and_each_worker_has_its_own_index() -> None:
    written = {name: writable_volumes(service) for name, service in SERVICES.items()}

    assert written == {
        **{name: [f"index-{name}"] for name in WORKERS},
        "keys": ["keys"],
        "redis": ["redis-data"],
        "supervisor": [],
        "console": [],
        "flower": ["flower-data"],
    }
    assert set(FILE["volumes"]) == set(chain.from_iterable(written.values()))


def test_the_service_of_the_page_for_your_own_specialists_has_its_own_index() -> None:
    page = sections(text_of("how-to/compose"))["Add your own specialists and tools"]
    sample = textwrap.dedent(page.partition("```yaml\n")[2].partition("```")[0])
    override = yaml.safe_load(sample)

    (index,) = set(override["volumes"])
    assert index not in FILE["volumes"]
    mounts = [
        volume for volume in override["services"]["orders"]["volumes"] if isinstance(volume, dict)
    ]
    assert mounts[0] == {"type": "volume", "source": index, "target": "/var/cache/handoff"}


def test_redis_has_users_and_a_limit_of_memory() -> None:
    command = SERVICES["redis"]["command"]

    assert "--aclfile /etc/handoff/keys/users.acl" in command
    assert "--maxmemory ${REDIS_MAXMEMORY:-2gb} --maxmemory-policy noeviction" in command
    assert SERVICES["redis"]["mem_limit"] == "${REDIS_MEMORY:-5g}"
    assert SERVICES["redis"]["depends_on"]["keys"]["condition"] == "service_completed_successfully"


def test_a_copy_of_the_environment_file_starts_nothing_before_its_password_is_set() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    example = (ROOT / ".env.example").read_text()
    refused = re.findall(r"\$\{(\w+):\?.+?\}", compose)

    assert refused == ["FLOWER_BASIC_AUTH"]
    assert re.search(r"^FLOWER_BASIC_AUTH=$", example, re.MULTILINE)
    assert "openssl rand -hex 24" in example


def test_each_port_of_the_host_comes_from_a_setting_that_the_page_names() -> None:
    published = {port for service in SERVICES.values() for port in service.get("ports", [])}
    page = sections(text_of("how-to/compose"))["Start it"]

    assert published == {
        "127.0.0.1:${REDIS_PORT:-6379}:6379",
        "127.0.0.1:${FLOWER_PORT:-5555}:5555",
        "127.0.0.1:${CONSOLE_PORT:-8321}:8321",
    }
    assert "set `REDIS_PORT`, `FLOWER_PORT` or `CONSOLE_PORT` in `.env`" in " ".join(page.split())
