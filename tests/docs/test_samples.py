"""Every sample of README.md, examples/ and docs/ is run or parsed, or is marked as output
(`text`).

A sample of a page and language without a check fails.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml

from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists import load_specialists, read_specialist
from handoff_queue.shared.specialists.lint import lint
from handoff_queue.shared.specialists.mcp_servers import read_servers
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.supervisor.assembly import QUEUES
from handoff_queue.supervisor.cli.request_options import read_gates_option, read_rubric
from handoff_queue.supervisor.cli.serve import DEFAULT_PORT
from handoff_queue.supervisor.evaluation.golden_set import read_golden
from handoff_queue.supervisor.workflows import read_items, read_workflow
from handoff_queue.workers.specialists import BUILT_IN
from handoff_queue.workers.tools.registry import BUILT_IN as BUILT_IN_TOOLS
from handoff_queue.workers.tools.user_tools import load_tools
from tests.deploy.helm import Helm, unpack_helm
from tests.docs.pages import ROOT, coded, rows, sections, text_of
from tests.docs.samples import Sample, assignments, calls, commands, of_page, pages, samples
from tests.docs.test_cli import COMMANDS
from tests.docs.test_configuration import OTHERS, SETTINGS
from tests.docs.test_tools import OWN_TOOLS

Check = Callable[[Sample, Path], None]
SAMPLES = samples()
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PROJECT = "handoff-queue"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORTED_PACKAGES = ("fastapi", "pytest", "uvicorn")
CLONE = "/path/to/the/clone"
EXTRAS = set(PYPROJECT["project"]["optional-dependencies"])
SECRETS = {"SHOP_TOKEN", "TOKEN"}
"""Variables that samples read."""
KNOWN_VARIABLES = {*SETTINGS, *OTHERS, *SECRETS}
OF_OTHERS = {".", "cp", "curl", "echo", "jq", "kill", "mkdir", "sleep", "uvicorn"}
"""Programs whose arguments nothing checks here. `tests/e2e/test_docs_pages.py` runs curl and
uvicorn.
"""


def check_output(_sample: Sample, _folder: Path) -> None:
    """Accept output and diagrams as they are."""


def check_diagram(sample: Sample, _folder: Path) -> None:
    """Check the kind of a diagram and that its parts are closed. The site draws it."""
    kind, *lines = sample.text.splitlines()
    text = "\n".join(lines)

    assert kind.split()[0] in {"flowchart", "sequenceDiagram"}
    assert [text.count(mark) for mark in "([{"] == [text.count(mark) for mark in ")]}"]
    words = [line.split()[0] for line in lines]
    assert words.count("subgraph") == words.count("end")


def check_console(sample: Sample, _folder: Path) -> None:
    typed = commands(sample.text)
    assert typed, "no line begins with a prompt: is it output?"
    subprocess.run(["bash", "-n", "-c", "\n".join(typed)], check=True)
    for command in typed:
        if command.startswith("make "):
            assert all(f"$({name})" in MAKEFILE for name in assignments(command))
        else:
            check_variables(assignments(command))
        for words in calls(command):
            check_call(words)


def check_call(words: list[str]) -> None:
    program, *arguments = words
    match program:
        case "handoff":
            check_handoff(arguments)
        case "docker":
            check_docker(arguments)
        case "celery":
            check_celery(arguments)
        case "make":
            assert arguments[0] in TARGETS
        case "pip":
            check_pip(arguments)
        case "python" if arguments in (["try_orders.py"], ["ask.py"]):
            pass  # test_specialist_tests.py and test_docs_pages.py of tests/e2e run them
        case "python":
            assert arguments[0] == "-m"
            module = ROOT / arguments[1].replace(".", "/")
            assert (module / "__main__.py").exists(), f"no command python -m {arguments[1]}"
        case "redis-cli":
            assert arguments[:3] == ["-u", "$HANDOFF_REDIS_URL", "BGSAVE"]
        case _:
            assert program in OF_OTHERS, f"no check knows the program {program}"


def check_handoff(arguments: list[str]) -> None:
    """Parse the arguments as the command does. Files of `examples/` must exist."""
    name, *rest = arguments
    COMMANDS[name].make_context(name, rest)
    missing = [word for word in rest if word.startswith("examples/") and not (ROOT / word).exists()]
    assert not missing


def check_docker(arguments: list[str]) -> None:
    if arguments[0] == "compose":
        scaled = re.findall(r"\b([a-z]+)=\d+", " ".join(arguments))
        named = [word for word in arguments[2:] if word in SERVICES]
        assert {*scaled, *named} <= set(SERVICES)
        assert arguments[1] in {"up", "ps", "logs", "cp", "exec", "run"}
        if arguments[1:4] == ["run", "--rm", "keys"]:
            check_handoff(arguments[4:] or ["keys"])
        if arguments[1] == "exec":
            assert arguments[2] in SERVICES
            assert arguments[3] == "handoff"
            check_handoff(arguments[4:])
    elif PROJECT in arguments:
        check_handoff(arguments[arguments.index(PROJECT) + 1 :])


def check_celery(arguments: list[str]) -> None:
    app = arguments[arguments.index("-A") + 1]
    known = {
        "handoff_queue.supervisor.app": {*QUEUES},
        "handoff_queue.workers.app": set(load_specialists(BUILT_IN)),
    }[app]
    if "-Q" in arguments:
        assert set(arguments[arguments.index("-Q") + 1].split(",")) <= known


def check_pip(arguments: list[str]) -> None:
    """Accept only the distribution of this project, with existing extras, and the packages that
    samples import.
    """
    assert arguments[0] == "install"
    for requirement in arguments[1:]:
        if requirement in IMPORTED_PACKAGES:
            continue
        match = re.fullmatch(rf"(?:{PROJECT}|{CLONE})(?:\[([\w,]+)\])?", requirement)
        assert match, requirement
        extras = match[1].split(",") if match[1] else []
        assert set(extras) <= EXTRAS


def check_variables(values: dict[str, str]) -> None:
    """Check the names of all variables, and the values of our settings."""
    assert set(values) <= KNOWN_VARIABLES
    if url := values.get("HANDOFF_REDIS_URL"):
        read_address(url)
    own = {
        name.removeprefix("HANDOFF_").lower(): value
        for name, value in values.items()
        if name.startswith("HANDOFF_")
    }
    assert set(own) <= set(Settings.model_fields)
    Settings.model_validate(own)


def check_environment(sample: Sample, _folder: Path) -> None:
    lines = [line.partition("=") for line in sample.text.splitlines()]
    check_variables({name: value for name, _, value in lines})


def check_specialist(sample: Sample, folder: Path) -> None:
    path = written(sample, folder, "specialist.md")
    spec = read_specialist(path, tools={*BUILT_IN_TOOLS, *OWN_TOOLS})
    together = load_specialists(BUILT_IN, folder)

    assert spec.name in together
    assert lint(together.values()) == []


def check_tools_line(sample: Sample, _folder: Path) -> None:
    """Compare the line with the front matter of the sample specialist."""
    text = of_page("docs/how-to/add-a-specialist.md", "markdown", "name: orders")
    assert sample.text in text


def check_tools(sample: Sample, folder: Path) -> None:
    written(sample, folder, "tools.py")
    assert load_tools(folder)


def check_program(sample: Sample, _folder: Path) -> None:
    """Compile it. `test_programs.py`, `test_notifications.py` and the e2e tests run it against
    a Redis.
    """
    compile(sample.text, str(sample), "exec")


def check_golden_journal(sample: Sample, folder: Path) -> None:
    """Run the program. It writes its journal into the folder, in place of the golden journals."""
    program = sample.text.replace("job.journal)", "job.journal, folder)")
    exec(compile(program, str(sample), "exec"), {"folder": folder})
    assert [path.name for path in sorted(folder.iterdir())] == ["NAME.json", "NAME.jsonl"]


def check_front_matter(sample: Sample, folder: Path) -> None:
    """Read the fields of a front matter in a specialist."""
    head = f"---\nname: mailer\ndescription: Sends mail.\n{sample.text}---\n"
    path = folder / "mailer.md"
    path.write_text(f"{head}You send the mail that you are asked to send.\n")
    spec = read_specialist(path)
    for field in yaml.safe_load(sample.text):
        assert getattr(spec, field), field


def check_app_or_program(sample: Sample, folder: Path) -> None:
    """Import the host's app in a separate process. It has the tasks of the page's specialists.
    Compile any other program.
    """
    if "Celery(" not in sample.text:
        check_program(sample, folder)
        return
    written(sample, folder, "shop.py")
    page = [
        block.text for block in SAMPLES if (block.page, block.language) == (sample.page, "markdown")
    ]
    tasks = re.findall(r"^celery_task: (\S+)$", "\n".join(page), re.MULTILINE)
    program = f"import shop; assert set({tasks}) <= set(shop.app.tasks)"

    assert tasks
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=folder, check=True)


def check_workflow(sample: Sample, folder: Path) -> None:
    assert read_workflow(str(written(sample, folder, "workflow.yaml"))).steps


def check_items(sample: Sample, folder: Path) -> None:
    assert read_items(written(sample, folder, "items.csv")).rows


def check_gates(sample: Sample, folder: Path) -> None:
    """Read the gates, with a made-up table that has the columns of the sample."""
    facts = yaml.safe_load(sample.text)["facts"]
    columns = ",".join(facts["columns"].values())
    (folder / facts["file"]).write_text(f"{columns}\n" + ",".join("abc"[: len(facts["columns"])]))
    assert read_gates_option(written(sample, folder, "gates.yaml"))


def check_policy(sample: Sample, folder: Path) -> None:
    assert read_rules(written(sample, folder, "policy.yaml")).rules


def check_rubric(sample: Sample, folder: Path) -> None:
    assert read_rubric(written(sample, folder, "rubric.yaml"))


def check_golden(sample: Sample, folder: Path) -> None:
    for name in ("vector-databases", "disagreeing-notes"):
        shutil.copytree(ROOT / "examples" / name, folder / name)
    assert read_golden(written(sample, folder, "golden.jsonl"))


def check_override(sample: Sample, _folder: Path) -> None:
    services = yaml.safe_load(sample.text)["services"]
    for name, service in services.items():
        assert service.get("extends", {}).get("service", name) in SERVICES
        environment = service.get("environment", {})
        check_variables({n: v for n, v in environment.items() if "${" not in v})
        if name != "redis":
            check_handoff(list(service["command"]))


def check_override_with_a_proxy(sample: Sample, _folder: Path) -> None:
    """Check the settings of the console, and the place of the proxy in its network."""
    override = yaml.safe_load(sample.text)
    console, proxy = override["services"]["console"], override["services"]["login"]
    check_variables(console["environment"])
    address = proxy["networks"]["login"]["ipv4_address"]
    assert console["environment"]["HANDOFF_SERVE_PROXIES"] == address
    (network,) = override["networks"]["login"]["ipam"]["config"]
    assert ip_address(address) in ip_network(network["subnet"])
    upstream = urlsplit(proxy["environment"]["OAUTH2_PROXY_UPSTREAMS"])
    assert (upstream.hostname, upstream.port) == ("console", DEFAULT_PORT)


def check_acl(sample: Sample, _folder: Path) -> None:
    """`tests/docs/test_security.py` runs everything as this user."""
    assert re.fullmatch(r"user handoff on >PASSWORD .+\n", sample.text)


def check_mcp_program(sample: Sample, _folder: Path) -> None:
    """Compile it. `test_mcp.py` and `tests/e2e/test_docs_pages.py` run it."""
    compile(sample.text, str(sample), "exec")


def check_mcp_server(sample: Sample, _folder: Path) -> None:
    """Read the server of a front matter."""
    servers, faults = read_servers(yaml.safe_load(sample.text)["mcp"])
    assert servers
    assert faults == []


def check_mcp_client(sample: Sample, _folder: Path) -> None:
    """Parse the file of an MCP client, and the commands that it names."""
    (server,) = json.loads(sample.text)["mcpServers"].values()
    check_variables(server["env"])
    check_call([server["command"], *server["args"]])


def check_scrape(sample: Sample, _folder: Path) -> None:
    """Check the settings that a collector needs for the scrape of `handoff serve`."""
    settings = yaml.safe_load(sample.text)
    while "scrape_configs" not in settings:
        (settings,) = settings.values()
    (scrape,) = settings["scrape_configs"]
    assert scrape["authorization"]["credentials_file"].startswith("/")
    assert scrape["static_configs"][0]["targets"] == [f"handoff-console:{DEFAULT_PORT}"]
    assert "metrics_path" not in scrape, "the default is /metrics"


def check_nginx(sample: Sample, _folder: Path) -> None:
    """Check the address of the server. `tests/e2e/test_reverse_proxy.py` runs nginx with it."""
    assert f"proxy_pass http://127.0.0.1:{DEFAULT_PORT};" in sample.text
    assert sample.text.count("{") == sample.text.count("}")


def check_promql(sample: Sample, _folder: Path) -> None:
    assert promql_parser.parse(sample.text)


def check_chart_values(sample: Sample, folder: Path) -> None:
    """Render the chart with the values of the sample. `helm` checks them by the chart's schema."""
    values = written(sample, folder, "values.yaml")
    objects = Helm(unpack_helm(folder)).template("--values", str(values))
    assert "demo-worker-orders" in {manifest["metadata"]["name"] for manifest in objects}


CHECKS: dict[tuple[str, str], Check] = {
    ("README.md", "python"): check_program,
    ("docs/get-started/python.md", "python"): check_program,
    ("docs/how-to/mcp-server.md", "json"): check_mcp_client,
    ("docs/how-to/mcp-server.md", "python"): check_mcp_program,
    ("docs/how-to/mcp-tools.md", "markdown"): check_output,
    ("docs/how-to/mcp-tools.md", "python"): check_mcp_program,
    ("docs/how-to/mcp-tools.md", "yaml"): check_mcp_server,
    ("docs/reference/tools.md", "yaml"): check_policy,
    ("docs/how-to/notifications.md", "python"): check_program,
    ("docs/how-to/batches.md", "python"): check_program,
    ("docs/how-to/budgets.md", "python"): check_program,
    ("docs/how-to/evaluation.md", "json"): check_golden,
    ("docs/how-to/evaluation.md", "yaml"): check_rubric,
    ("docs/how-to/gates.md", "csv"): check_output,
    ("docs/how-to/gates.md", "markdown"): check_output,
    ("docs/how-to/gates.md", "python"): check_program,
    ("docs/how-to/gates.md", "yaml"): check_gates,
    ("docs/how-to/memory.md", "markdown"): check_specialist,
    ("docs/how-to/memory.md", "yaml"): check_workflow,
    ("docs/how-to/messages.md", "python"): check_program,
    ("docs/how-to/schedules.md", "python"): check_program,
    ("docs/how-to/test-specialists.md", "python"): check_program,
    ("docs/how-to/web-backend.md", "python"): check_program,
    ("docs/how-to/workflows.md", "python"): check_program,
    ("docs/concepts/joins.md", "yaml"): check_workflow,
    ("docs/how-to/approvals.md", "yaml"): check_front_matter,
    ("docs/reference/specialist-files.md", "yaml"): check_front_matter,
    ("docs/how-to/compose.md", "yaml"): check_override,
    ("docs/how-to/proxy-login.md", "dotenv"): check_environment,
    ("docs/how-to/proxy-login.md", "yaml"): check_override_with_a_proxy,
    ("docs/how-to/proxy-login.md", "nginx"): check_nginx,
    ("docs/how-to/deploy-on-kubernetes.md", "yaml"): check_chart_values,
    ("docs/how-to/metrics.md", "yaml"): check_scrape,
    ("docs/how-to/metrics.md", "promql"): check_promql,
    ("docs/contributing/add-an-event.md", "python"): check_golden_journal,
    ("docs/how-to/redis-url.md", "dotenv"): check_environment,
    ("docs/security-measures.md", "acl"): check_acl,
    ("docs/how-to/add-a-specialist.md", "markdown"): check_specialist,
    ("docs/how-to/add-a-specialist.md", "python"): check_app_or_program,
    ("docs/how-to/add-a-tool.md", "python"): check_tools,
    ("docs/how-to/add-a-tool.md", "text"): check_tools_line,
    ("docs/how-to/workflows.md", "csv"): check_items,
    ("docs/how-to/workflows.md", "markdown"): check_output,
    ("docs/how-to/workflows.md", "yaml"): check_workflow,
}
"""Page and language -> how its samples are checked."""
ANYWHERE: dict[str, Check] = {
    "console": check_console,
    "mermaid": check_diagram,
    "text": check_output,
}


def written(sample: Sample, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(sample.text)
    return path


def check_of(sample: Sample) -> Check:
    check = CHECKS.get((sample.page, sample.language)) or ANYWHERE.get(sample.language)
    assert check, (
        f"{sample}: nothing checks a sample in {sample.language or 'no language'} here: "
        "add a check, or mark output as ```text"
    )
    return check


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_sample_is_checked(sample: Sample, tmp_path: Path) -> None:
    check_of(sample)(sample, tmp_path)


def test_every_check_has_a_sample() -> None:
    assert set(CHECKS) <= {(sample.page, sample.language) for sample in SAMPLES}
    assert set(ANYWHERE) <= {sample.language for sample in SAMPLES}


def test_the_specialists_of_all_pages_serve_together_without_a_remark(tmp_path: Path) -> None:
    for number, sample in enumerate(SAMPLES):
        if check_of(sample) is check_specialist:
            written(sample, tmp_path, f"{number}.md")

    together = load_specialists(BUILT_IN, tmp_path)

    assert "orders" in together
    assert lint(together.values()) == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("console", "$ handoff run --no-such-option\n"),
        ("console", "$ handoff fly\n"),
        ("console", "$ handoff result j-0123456789ab --wait 10x\n"),
        ("console", "$ handoff list | handoff cancel --every\n"),
        ("console", "$ handoff run 'unfinished\n"),
        ("console", "$ export HANDOFF_LEASE_S=soon\n"),
        ("console", "$ export HANDOFF_LEASES=15\n"),
        ("console", "$ export HANDOFF_REDIS_URL=http://redis:6379/0\n"),
        ("console", "$ export SHOP_TOKENS=...\n"),
        ("console", "$ docker compose up --scale reseacher=3\n"),
        ("console", "$ docker run handoff-queue worker --al\n"),
        ("console", "$ celery -A handoff_queue.workers.app worker -Q supervisor\n"),
        ("console", "$ make everything\n"),
        ("console", "$ make chaos KILL=200\n"),
        ("console", "$ pip install handoff\n"),
        ("console", "$ pip install .\n"),
        ("console", "$ pip install 'handoff-queue[everything]'\n"),
        ("console", "$ some-program\n"),
        ("console", "handoff list\n"),
        ("", "handoff list\n"),
        ("toml", "[tool]\n"),
        ("mermaid", "flowchart LR\n    a[a --> b\n"),
    ],
)
def test_a_wrong_sample_is_seen(tmp_path: Path, language: str, text: str) -> None:
    sample = Sample("README.md", 1, "", language, text)

    with pytest.raises(Exception):  # noqa: B017, PT011 - each check has errors of its own
        check_of(sample)(sample, tmp_path)


GUIDES = [page for page in pages() if page.parent.name in ("how-to", "get-started")]
FILE_OPTIONS = {
    *("--answer-schema", "--docs", "--file", "--gates", "--items"),
    *("--rubric", "--specialists", "--tools", "--workflow"),
}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_makes_or_shows_every_file_that_its_commands_read(page: Path) -> None:
    typed = [line for sample in console_samples_of(page) for line in commands(sample.text)]
    made = {words[-1] for line in typed for words in calls(line) if words[0] == "mkdir"}
    prose = re.sub(r"```console\n.*?```", "", page.read_text(), flags=re.DOTALL)
    read = {
        name.removeprefix("./")
        for line in typed
        for words in calls(line)
        for option, name in pairwise(words)
        if option in FILE_OPTIONS and not is_in_the_package(option, name)
    }

    shown = {name for name in read if re.search(rf"`(\./)?{re.escape(name)}[`/]", prose)}
    assert read - made - shown == set()


def is_in_the_package(option: str, name: str) -> bool:
    is_built_in = option == "--workflow" and "." not in name
    return is_built_in or name.startswith("examples/")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_request_of_a_guide_to_the_http_api_sends_a_token(page: Path) -> None:
    typed = [line for sample in console_samples_of(page) for line in commands(sample.text)]
    requests = [
        line for line in typed if line.startswith("curl ") and f":{DEFAULT_PORT}/v1" in line
    ]

    assert [line for line in requests if "Authorization: Bearer $token" not in line] == []


def console_samples_of(page: Path) -> list[Sample]:
    name = str(page.relative_to(ROOT))
    return [sample for sample in SAMPLES if (sample.page, sample.language) == (name, "console")]


def test_no_command_replaces_the_installation_of_the_clone() -> None:
    """`make run` installs the clone as an editable package, which `pip install .` replaces."""
    for page in pages():
        assert re.findall(r"pip install '?\..*", page.read_text()) == [], page


def test_the_first_python_program_names_every_extra() -> None:
    section = sections(text_of("get-started/python"))["1. Install the client"]

    assert sorted(coded(row[0]) for row in rows(section)) == sorted(EXTRAS)
