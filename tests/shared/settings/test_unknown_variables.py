"""A variable `HANDOFF_...` that nothing reads is named. No variable that the project reads is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from handoff_queue.shared.settings.unknown_variables import build_unknown_variables_warning
from tests.e2e.test_hostile_environment import service_links

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"HANDOFF_[A-Z0-9_]*[A-Z0-9]")
FOLDERS = (
    "shared",
    "supervisor",
    "workers",
    "chaos",
    "benchmarks",
    "docs",
    "handoff_queue/testing",
)
OTHER_FILES = ("docker-compose.yml", ".env.example", "Dockerfile", "Makefile", ".ci/run-job")


def names_in_the_code() -> set[str]:
    names: set[str] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if "HANDOFF_" not in source:
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.update(filter(NAME.fullmatch, [node.value]))
    return names


@pytest.mark.slow
def test_no_variable_that_the_project_reads_is_unknown() -> None:
    names = names_in_the_code()
    helm: list[Path] = []
    for suffix in ("*.yaml", "*.tpl", "*.json", "*.md", "*.py", "*.txt"):
        helm += (ROOT / "deploy").rglob(suffix)
    for path in (*helm, *(ROOT / name for name in OTHER_FILES)):
        names.update(NAME.findall(path.read_text()))

    assert len(names) > 60, "the search finds the names"
    assert build_unknown_variables_warning(names) is None


def test_the_line_names_each_unknown_variable_and_the_closest_known_one() -> None:
    environment = ("HANDOFF_ZZZ", "HANDOFF_LOG_LEVEL", "HANDOFF_MAX_TOKEN", "handoff_moed", "HOME")

    assert build_unknown_variables_warning(environment) == (
        "unknown environment variables are ignored: HANDOFF_MAX_TOKEN (did you mean"
        " HANDOFF_DAY_TOKENS?), HANDOFF_ZZZ, handoff_moed (did you mean HANDOFF_MODE?)"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HANDOFF_MAX_USD_PER_DAY", "HANDOFF_DAY_USD"),
        ("HANDOFF_USD_DAY", "HANDOFF_DAY_USD"),
        ("HANDOFF_MAX_TOKENS_PER_DAY", "HANDOFF_DAY_TOKENS"),
        ("HANDOFF_USD_PER_DAY_AND_TENANT", "HANDOFF_TENANT_DAY_USD"),
        ("HANDOFF_OPEN_JOBS_PER_TENANT", "HANDOFF_TENANT_OPEN_JOBS"),
        ("HANDOFF_FILE_OF_REDIS_URL", "HANDOFF_REDIS_URL_FILE"),
    ],
)
def test_a_name_with_the_words_of_a_known_name_in_another_order_gets_it(
    name: str, meant: str
) -> None:
    assert str(build_unknown_variables_warning([name])).endswith(f"{name} (did you mean {meant}?)")


def test_service_links_of_kubernetes_are_not_named() -> None:
    for service in ("HANDOFF", "HANDOFF_QUEUE_REDIS"):
        links = service_links(service)

        assert build_unknown_variables_warning(links) is None
        assert "HANDOFF_PROT" in str(
            build_unknown_variables_warning({**links, "HANDOFF_PROT": "1"})
        )
