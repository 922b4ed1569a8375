"""`helm` renders the chart, every object is valid for Kubernetes, and the parts fit together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.specialist_files import load_specialists
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.workers.specialists import BUILT_IN
from tests.deploy.helm import CHART, Helm, unpack_helm
from tests.docs.pages import sections, text_of
from tests.docs.test_samples import check_handoff, check_variables
from tests.doubles.jobs import a_job, issue
from tests.supervisor.serve.conftest import LOCAL, URL

pytestmark = pytest.mark.slow

KUBERNETES = ("1.27", "1.31", "1.35")
"""Versions whose schemas the objects must match."""
SCALED = ("--set", "autoscaling.enabled=true")
OWN_ROLE = (
    "--set-json",
    'workers={"data_clerk": {"slots": 3, "minReplicas": 2, "maxReplicas": 5}}',
)
LONGEST = {f"the_longest_name_of_a_specialist_48_characters_{letter}" for letter in "ab"}
LONG_NAMES = ("--set", ",".join(f"workers.{name}.slots=4" for name in sorted(LONGEST)))
OPTIONAL = (
    *("--set", "image.repository=registry.example/handoff-queue,image.tag=1.4"),
    *("--set-json", 'image.pullSecrets=[{"name": "pull"}]'),
    *("--set", "settings.HANDOFF_LOG_LEVEL=INFO,podAnnotations.team=agents"),
    *("--set-json", 'extraVolumes=[{"name": "own", "configMap": {"name": "specialists"}}]'),
    *("--set-json", 'extraVolumeMounts=[{"name": "own", "mountPath": "/etc/handoff"}]'),
    *("--set-json", 'tolerations=[{"key": "agents", "operator": "Exists"}]'),
    *("--set", "nodeSelector.pool=agents"),
    *("--set-json", 'networkPolicy.from=[{"ipBlock": {"cidr": "10.0.0.0/8"}}]'),
)
VARIANTS: dict[str, tuple[str, ...]] = {
    "the defaults": (),
    "autoscaling": SCALED,
    "own roles": (*OWN_ROLE, *SCALED),
    "specialists with the longest names": (*LONG_NAMES, *SCALED),
    "one Redis user": ("--set", "secrets.redis.name=handoff-redis"),
    "everything optional is off": (
        "--set",
        "flower.enabled=false,secrets.model=,networkPolicy.enabled=false",
    ),
    "everything optional is set": (*SCALED, *OPTIONAL),
}
"""Name of a variant of the values -> arguments of `helm`."""
KEDA: dict[str, Any] = {
    "ScaledObject": {
        "type": "object",
        "additionalProperties": False,
        "required": ["scaleTargetRef", "triggers"],
        "properties": {
            "scaleTargetRef": {"required": ["name"]},
            "pollingInterval": {"type": "integer"},
            "minReplicaCount": {"type": "integer"},
            "maxReplicaCount": {"type": "integer"},
            "advanced": {"type": "object"},
            "triggers": {
                "type": "array",
                "items": {
                    "additionalProperties": False,
                    "required": ["type", "metadata"],
                    "properties": {
                        "type": {"const": "metrics-api"},
                        "metadata": {
                            "additionalProperties": False,
                            "required": ["url", "valueLocation", "targetValue"],
                            "properties": {
                                "url": {"type": "string"},
                                "valueLocation": {"type": "string"},
                                "targetValue": {"type": "string"},
                                "authMode": {"const": "bearer"},
                            },
                        },
                        "authenticationRef": {"required": ["name"]},
                    },
                },
            },
        },
    },
    "TriggerAuthentication": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "secretTargetRef": {
                "type": "array",
                "items": {
                    "additionalProperties": False,
                    "required": ["parameter", "name", "key"],
                    "properties": {
                        "parameter": {"const": "token"},
                        "name": {"type": "string"},
                        "key": {"type": "string"},
                    },
                },
            }
        },
    },
}
"""The part of KEDA's API that the chart uses: kind -> JSON Schema of the field `spec`."""
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(unpack_helm(tmp_path_factory.mktemp("helm")))


@pytest.fixture
def jobs(redis_url: str) -> Client:
    return connect(redis_url, Settings(offline=True))


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by name."""
    return {
        manifest["metadata"]["name"]: manifest for manifest in objects if manifest["kind"] == kind
    }


def pod_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = deployment["spec"]["template"]
    return pod


def container_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(deployment)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def selected(selector: Mapping[str, str], deployments: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the Deployments whose pods have all these labels."""
    return [
        deployment["metadata"]["name"]
        for deployment in deployments
        if selector.items() <= pod_of(deployment)["metadata"]["labels"].items()
    ]


def test_helm_finds_no_fault_in_the_chart(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout


@cache
def check_object(text: str) -> None:
    """Check an object against its schemas, once: the variants share most objects."""
    manifest = json.loads(text)
    if manifest["apiVersion"].startswith("keda.sh/"):
        jsonschema.validate(manifest["spec"], KEDA[manifest["kind"]])
    else:
        for version in KUBERNETES:
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_is_valid_for_kubernetes(helm: Helm, variant: str) -> None:
    objects = helm.template(*VARIANTS[variant])

    assert objects
    for manifest in objects:
        check_object(json.dumps(manifest))
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in objects]
    assert len(set(names)) == len(names)


def test_each_built_in_specialist_has_a_deployment(helm: Helm) -> None:
    deployments = of_kind(helm.template(), "Deployment")

    roles = {name.removeprefix("demo-worker-") for name in deployments if "-worker-" in name}
    assert roles == set(load_specialists(BUILT_IN))
    assert {"demo-supervisor", "demo-console", "demo-flower"} <= set(deployments)


def test_the_commands_of_all_containers_are_valid(helm: Helm) -> None:
    for name, deployment in of_kind(helm.template(*OWN_ROLE), "Deployment").items():
        container = container_of(deployment)
        if name == "demo-flower":
            assert container["command"][0] == "celery"
        else:
            check_handoff(container["args"])
        if name.endswith("data-clerk"):
            assert container["args"] == ["worker", "data_clerk", "-c", "3"]


def test_each_worker_has_an_index_that_no_other_pod_can_mount(helm: Helm) -> None:
    for name, deployment in of_kind(helm.template(), "Deployment").items():
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        if "-worker-" in name:
            assert {"name": "cache", "emptyDir": {}} in volumes
        assert not [volume for volume in volumes if "persistentVolumeClaim" in volume]


def test_specialists_with_the_longest_names_have_deployments_of_their_own(helm: Helm) -> None:
    objects = helm.template(*LONG_NAMES, *SCALED, release="a-release-with-a-long-name")

    deployments = of_kind(objects, "Deployment")
    served = {container_of(deployment)["args"][1] for deployment in deployments.values()}
    assert {len(name) for name in LONGEST} == {48}
    assert served > LONGEST
    for kind in ("Deployment", "PodDisruptionBudget", "ScaledObject"):
        names = [entry["metadata"]["name"] for entry in objects if entry["kind"] == kind]
        assert len(set(names)) == len(names)
        assert max(map(len, names)) <= 63


def test_helm_refuses_two_specialists_with_the_same_names_in_kubernetes(helm: Helm) -> None:
    clash = json.dumps({"data_clerk": {}, "data-clerk": {}})

    done = helm.run("template", "demo", str(CHART), "--set-json", f"workers={clash}")

    assert done.returncode != 0
    assert "workers.data-clerk and workers.data_clerk have the same names" in done.stderr


def test_a_process_has_ten_minutes_for_its_start(helm: Helm) -> None:
    for name, deployment in of_kind(helm.template(), "Deployment").items():
        probe = container_of(deployment)["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] == 600, name


def test_a_role_is_left_out_if_its_value_is_null(helm: Helm) -> None:
    with_all = of_kind(helm.template(), "Deployment")

    without = of_kind(helm.template("--set", "workers.legal=null"), "Deployment")

    assert set(with_all) - set(without) == {"demo-worker-legal"}


def test_flower_runs_as_in_the_compose_file(helm: Helm) -> None:
    compose = yaml.safe_load((CHART.parents[2] / "docker-compose.yml").read_text())
    flower = compose["services"]["flower"]

    container = container_of(of_kind(helm.template(), "Deployment")["demo-flower"])

    assert container["command"] == flower["entrypoint"]
    assert container["args"] == flower["command"]


def test_the_console_runs_as_in_the_compose_file_and_each_probe_asks_for_its_health(
    helm: Helm,
) -> None:
    compose = yaml.safe_load((CHART.parents[2] / "docker-compose.yml").read_text())

    container = container_of(of_kind(helm.template(), "Deployment")["demo-console"])

    assert set(compose["services"]["console"]["command"]) <= set(container["args"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_variables_are_known_settings_and_secrets_come_by_reference(helm: Helm) -> None:
    objects = helm.template("--set", "settings.HANDOFF_LOG_LEVEL=INFO")

    assert not of_kind(objects, "Secret")
    for name, deployment in of_kind(objects, "Deployment").items():
        container = container_of(deployment)
        plain = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        check_variables(plain)
        by_reference = {entry["name"] for entry in container["env"] if "valueFrom" in entry}
        assert by_reference == ({"FLOWER_BASIC_AUTH"} if name == "demo-flower" else set())
        assert plain["HANDOFF_REDIS_URL_FILE"] == "/etc/handoff/keys/redis-url"
        is_agent = name == "demo-supervisor" or "-worker-" in name
        assert bool(container.get("envFrom")) is is_agent
        assert (plain.get("HANDOFF_LOG_LEVEL") == "INFO") is is_agent


def make_documented_keys(folder: Path) -> None:
    """Run the command of the page that makes the keys and the folders."""
    (command,) = re.findall(r"\$ handoff (keys init .+)", text_of("how-to/deploy-on-kubernetes"))
    arguments = command.split()[1:]
    arguments[1] = str(folder)
    load_command("keys").main(arguments, standalone_mode=False)


def read_documented_shell(heading: str) -> str:
    """Return the first shell commands under a heading of the page."""
    page = sections(text_of("how-to/deploy-on-kubernetes"))[heading]
    return textwrap.dedent(page.partition("```text\n")[2].partition("```")[0])


def test_a_rotation_gives_each_pod_the_public_key_before_one_pod_signs_with_the_private_key(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys"
    make_documented_keys(keys)
    key_before = (keys / "supervisor" / "signing.key").read_bytes()
    program = 'handoff() { "$PYTHON" -m handoff_queue.supervisor.cli.main "$@"; }\n'

    subprocess.run(
        ["bash", "-e", "-c", program + read_documented_shell("Rotate a key")],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
        timeout=120,
    )
    keyrings = {file.read_bytes() for file in keys.glob("*/keyring.json")}
    key_after_copies = (keys / "supervisor" / "signing.key").read_bytes()
    make_documented_keys(keys)

    assert keyrings == {(keys / "keyring.json").read_bytes()}
    assert key_after_copies == key_before
    rotated_key = (keys / "supervisor.key").read_bytes()
    assert (keys / "supervisor" / "signing.key").read_bytes() == rotated_key != key_before


def test_the_commands_that_make_the_secrets_may_run_again() -> None:
    commands = read_documented_shell("Make the secrets")

    assert commands.count("create secret") == 1
    assert re.search(r"create secret .+ --dry-run=client -o yaml \| kubectl apply -f -", commands)


def test_each_pod_mounts_the_secret_of_its_part_and_no_other(helm: Helm, tmp_path: Path) -> None:
    """The documented command makes a folder for each Secret."""
    make_documented_keys(tmp_path)
    folders = {path.name: {file.name for file in path.iterdir()} for path in tmp_path.glob("*/")}

    for name, deployment in of_kind(helm.template(), "Deployment").items():
        part = name.removeprefix("demo-")
        volumes = pod_of(deployment)["spec"]["volumes"]
        (secret,) = [entry["secret"] for entry in volumes if "secret" in entry]
        assert secret == {"secretName": f"handoff-{part}", "defaultMode": 0o440}
        container = container_of(deployment)
        (mount,) = [entry for entry in container["volumeMounts"] if entry["name"] == "keys"]
        assert mount["readOnly"] is True
        files = [
            entry["value"].removeprefix("/etc/handoff/keys/")
            for entry in container["env"]
            if str(entry.get("value")).startswith("/etc/handoff/keys/")
        ]
        assert set(files) <= folders[part]
        assert ("signing.key" in files) is (part != "flower")


def test_one_redis_user_serves_all_pods_for_development(helm: Helm) -> None:
    objects = helm.template(*VARIANTS["one Redis user"])

    for deployment in of_kind(objects, "Deployment").values():
        (url,) = [
            entry
            for entry in container_of(deployment)["env"]
            if entry["name"] == "HANDOFF_REDIS_URL"
        ]
        assert url["valueFrom"]["secretKeyRef"] == {"name": "handoff-redis", "key": "url"}
        assert "keys" not in {entry["name"] for entry in pod_of(deployment)["spec"]["volumes"]}


def test_pods_have_few_rights_and_get_no_variables_of_services(helm: Helm) -> None:
    for deployment in of_kind(helm.template(), "Deployment").values():
        pod, container = pod_of(deployment)["spec"], container_of(deployment)
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe], probe


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return True if labels match a selector of Kubernetes."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    for expression in selector.get("matchExpressions", []):
        is_in = labels.get(expression["key"]) in expression["values"]
        if is_in is not (expression["operator"] == "In"):
            return False
    return True


def may_connect(
    policies: Iterable[dict[str, Any]], target: Mapping[str, str], source: Mapping[str, str]
) -> bool:
    """Return True if the policies let a pod of the namespace `agents` connect to a target.

    `target`, `source`: the labels of both pods.
    """
    of_target = [
        policy["spec"] for policy in policies if matches(policy["spec"]["podSelector"], target)
    ]
    assert of_target, f"no policy selects {target}"
    peers = [
        peer
        for policy in of_target
        for entry in policy.get("ingress", [])
        for peer in entry["from"]
    ]
    return any("podSelector" in peer and matches(peer["podSelector"], source) for peer in peers)


def test_agents_reach_no_other_pod_and_other_programs_reach_the_console(helm: Helm) -> None:
    objects = helm.template()
    policies = of_kind(objects, "NetworkPolicy").values()
    labels = {
        name: pod_of(deployment)["metadata"]["labels"]
        for name, deployment in of_kind(objects, "Deployment").items()
    }
    web = {"demo-console", "demo-flower"}

    for name, target in labels.items():
        for other, source in labels.items():
            is_allowed = name in web and other in web
            assert may_connect(policies, target, source) is is_allowed, (other, name)
        prometheus = {"app.kubernetes.io/name": "prometheus"}
        assert may_connect(policies, target, prometheus) is (name in web)


def test_programs_of_other_namespaces_reach_the_console_and_no_agent(helm: Helm) -> None:
    policies = of_kind(helm.template(), "NetworkPolicy")
    (entry,) = policies["demo-web"]["spec"]["ingress"]
    (namespaces,) = [
        peer["namespaceSelector"]
        for peer in entry["from"]
        if len(peer) == 1 and "namespaceSelector" in peer
    ]

    assert matches(namespaces, {"kubernetes.io/metadata.name": "ingress"})
    assert not matches(namespaces, {"kubernetes.io/metadata.name": "agents"})
    assert "ingress" not in policies["demo-agents"]["spec"]


@pytest.mark.parametrize("drain_s", [0, 30, 600])
def test_kubernetes_waits_longer_than_a_process_drains(helm: Helm, drain_s: int) -> None:
    for name, deployment in of_kind(
        helm.template("--set", f"drainSeconds={drain_s}"), "Deployment"
    ).items():
        drains = {
            entry["name"]: entry.get("value") for entry in container_of(deployment)["env"]
        }.get("HANDOFF_DRAIN_S")
        assert (drains == str(drain_s)) is (name == "demo-supervisor" or "-worker-" in name)
        if drains is not None:
            assert pod_of(deployment)["spec"]["terminationGracePeriodSeconds"] > drain_s


@pytest.mark.parametrize(
    "release", ["demo", "a-release-with-a-very-long-name-of-53-characters-in-all"[:53]]
)
def test_services_and_budgets_select_the_pods_of_one_deployment(helm: Helm, release: str) -> None:
    objects = helm.template(release=release)
    deployments = of_kind(objects, "Deployment")
    budgets = of_kind(objects, "PodDisruptionBudget")

    for name, service in of_kind(objects, "Service").items():
        assert selected(service["spec"]["selector"], deployments.values()) == [name]
        ports = {port["name"] for port in container_of(deployments[name])["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for name, budget in budgets.items():
        labels = budget["spec"]["selector"]["matchLabels"]
        assert selected(labels, deployments.values()) == [name]
    assert {name for name in deployments if not name.endswith("-flower")} == set(budgets)


def test_keda_scales_each_role_on_the_wanted_slots_of_the_server(helm: Helm, jobs: Client) -> None:
    issue(jobs.store, a_job(jobs.store), "a.1", "b.1", role="data_clerk")
    app = make_application(AsyncClient(jobs), Settings(offline=True))
    objects = helm.template(*OWN_ROLE, *SCALED)
    deployments, services = of_kind(objects, "Deployment"), of_kind(objects, "Service")
    scaled = of_kind(objects, "ScaledObject")["demo-worker-data-clerk"]
    (trigger,) = scaled["spec"]["triggers"]
    asked = trigger["metadata"]

    host, port, path = re.fullmatch(r"http://(.+)\.agents\.svc:(\d+)(/.+)", asked["url"]).groups()  # type: ignore[union-attr]
    place = re.fullmatch(r'agents\.#\(agent=="(.+)"\)\.(\w+)', asked["valueLocation"])
    agent, field = place.groups()  # type: ignore[union-attr]
    with TestClient(app, base_url=URL, client=LOCAL) as http:
        stats = http.get(path).json()
    wanted = [row[field] for row in stats["agents"] if row["agent"] == agent]

    assert wanted == [2]
    assert int(port) == services[host]["spec"]["ports"][0]["port"]
    target = deployments[scaled["spec"]["scaleTargetRef"]["name"]]
    slots = container_of(target)["args"][-1]
    assert (asked["targetValue"], slots) == ("3", "3")
    assert "replicas" not in target["spec"], "KEDA sets the number of pods"
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["maxReplicaCount"]) == (2, 5)
    assert trigger["authenticationRef"]["name"] in of_kind(objects, "TriggerAuthentication")


@pytest.mark.parametrize(
    "wrong",
    [
        "workerDefaults.minReplicas=0",
        "workers.researcher.slots=0",
        "workers.researcher.slot=4",
        "settings.log-level=INFO",
        "secrets.processes=",
        "console.serviceType=Public",
        "supervisors.replicas=3",
        "workers.clerk_.slots=1",
    ],
)
def test_helm_refuses_values_that_make_no_sense(helm: Helm, wrong: str) -> None:
    done = helm.run("template", "demo", str(CHART), "--set", wrong)

    assert done.returncode != 0
    assert any(name in done.stderr for name in wrong.partition("=")[0].split("."))


def test_the_chart_has_the_version_of_the_project() -> None:
    project = tomllib.loads((CHART.parents[2] / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == project["version"]
