"""Each surface that foreign data reaches has its number of attacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import pytest

from tests import forked_processes
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

COLLECTED_WITHIN_S = 240.0
"""Seconds in which a process of its own collects all cases, also on a busy machine."""
IN_ALL = 800
"""Cases of all surfaces together, without the users of Redis."""
HOSTILE = "tests/hostile/test_"
SERVE = "tests/supervisor/serve/test_"
SURFACES: dict[str, tuple[int, tuple[str, ...]]] = {
    "queue messages": (
        90,
        (f"{HOSTILE}queue_messages", f"{HOSTILE}forged_handoffs", f"{HOSTILE}remote_control"),
    ),
    "Redis": (
        150,  # a test of a user tries all its commands
        (
            f"{HOSTILE}redis_floods",
            f"{HOSTILE}redis_users",
            f"{HOSTILE}redis_values",
            f"{HOSTILE}forged_results",
        ),
    ),
    "documents": (
        90,
        (
            f"{HOSTILE}document_names",
            f"{HOSTILE}given_documents",
            f"{HOSTILE}invisible_text.py::test_invisible_characters_of_a_document",
            f"{HOSTILE}swapped_files",
        ),
    ),
    "archives": (80, (f"{HOSTILE}archives",)),
    "PDFs": (30, (f"{HOSTILE}pdfs",)),
    "HTML": (
        12,
        (
            f"{HOSTILE}invisible_text.py::test_hidden_elements",
            "tests/shared/documents/test_html.py::test_no_markup_breaks_it",
            "tests/shared/documents/test_html.py::test_a_page_nested_deeper_than_the_stack",
            "tests/shared/documents/test_extraction.py::test_a_page_that_its_parser_chokes_on",
        ),
    ),
    "YAML": (90, (f"{HOSTILE}yaml_files",)),
    "SQLite": (
        30,
        (
            f"{HOSTILE}sqlite_files",
            "tests/supervisor/test_facts_files.py::test_a_sqlite_file_gives_columns_of_one_plain",
        ),
    ),
    "CSV": (18, (f"{HOSTILE}tables",)),
    "schemas": (
        20,
        (
            "tests/shared/agent/test_bounded_validation.py::test_a_schema_that_expands",
            "tests/shared/agent/test_bounded_validation.py::test_a_value_that_is",
            "tests/shared/agent/test_bounded_validation.py::test_definitions_that_refer_twice",
            "tests/shared/agent/test_bounded_validation.py::test_the_check_of_a_schema_ends",
            "tests/shared/agent/test_bounded_validation.py::test_the_limit_of_all_steps",
        ),
    ),
    "model replies": (40, (f"{HOSTILE}model_replies", f"{HOSTILE}questions_of_models")),
    "tool results": (35, (f"{HOSTILE}tool_results", f"{HOSTILE}user_tools")),
    "code of a model": (55, (f"{HOSTILE}sandbox",)),
    "networks of tools": (
        110,
        (f"{HOSTILE}tool_networks", "tests/workers/tools/test_network_proxy.py::"),
    ),
    "MCP servers": (
        35,
        (
            f"{HOSTILE}mcp_requests",
            "tests/workers/tools/mcp/test_mcp_hints.py::",
            "tests/workers/tools/mcp/test_mcp_over_http.py::test_harm",
            "tests/workers/tools/mcp/test_mcp_over_http.py::test_a_server_over_http_that_hangs",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_a_private_address_is_refused",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_a_changed_tool",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_a_secret_is_removed",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_a_server_that_hangs",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_a_tool_that",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_harm",
            "tests/workers/tools/mcp/test_mcp_tools.py::test_lines_that_are_not_messages",
        ),
    ),
    "web pages": (
        8,
        (
            f"{HOSTILE}http_answers",
            "tests/workers/tools/test_fetch_url.py::test_a_non_text_page",
            "tests/workers/tools/test_fetch_url.py::test_a_page_larger_than_the_limit",
            "tests/workers/tools/test_fetch_url.py::test_a_redirect",
            "tests/workers/tools/test_fetch_url.py::test_a_slow_server",
            "tests/workers/tools/test_fetch_url.py::test_a_small_file_that_unpacks",
            "tests/workers/tools/test_fetch_url.py::test_more_than_five_redirects",
        ),
    ),
    "URLs": (
        50,
        (
            "tests/shared/network/test_addresses.py::test_special_addresses",
            "tests/shared/network/test_addresses.py::test_a_host_without_a_usable_address",
            "tests/shared/network/test_addresses.py::test_an_ipv6_address_that_contains",
            "tests/shared/network/test_addresses.py::test_one_private_address_among_public_ones",
            "tests/workers/tools/test_fetch_url.py::test_an_address_that_is_not_a_page",
            "tests/workers/tools/test_fetch_url.py::test_the_real_tool_refuses_this_host",
            "tests/workers/tools/test_fetch_url.py::test_each_hop",
        ),
    ),
    "private texts in URLs": (150, (f"{HOSTILE}private_urls", f"{HOSTILE}ordinary_urls")),
    "terminal": (45, (f"{HOSTILE}terminal_output",)),
    "HTML pages": (
        45,
        (f"{HOSTILE}html_pages", "tests/supervisor/tracing/test_page.py::test_foreign_text"),
    ),
    "webhooks": (
        55,
        (
            f"{HOSTILE}webhook_addresses",
            "tests/supervisor/engine/test_webhooks.py::test_a_receiver_that_answers_byte_by_byte",
            "tests/supervisor/engine/test_webhooks.py::test_a_webhook",
        ),
    ),
    "Flower": (110, (f"{HOSTILE}flower_events",)),
    "HTTP API": (
        60,
        (
            f"{HOSTILE}open_streams",
            f"{HOSTILE}unfinished_bodies",
            f"{SERVE}authentication.py",
            f"{SERVE}any_input.py",
            f"{SERVE}request_limits.py",
            f"{SERVE}problem_documents.py::test_a_body_that_is_not_json",
            f"{SERVE}proxy_authentication.py::test_the_headers_of_another_address",
            f"{SERVE}proxy_authentication.py::test_a_page_of_another_site",
            f"{SERVE}wrong_tokens.py",
        ),
    ),
}
"""Surface -> the least number of its cases, and the beginnings of the names of its tests."""


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> list[str]:
    """Return the names of all cases of the files above.

    A run of all tests has collected these cases. Another run collects them in a forked process.
    """
    collected = [item.nodeid for item in request.session.items]
    has_all = not too_few(collected) and not any(map(partial(missing, collected), SURFACES))
    return collected if has_all else collected_in_another_process()


def collected_in_another_process() -> list[str]:
    """Collect the cases of the files above in a process that has imported the product.

    It cannot rewrite assertions of these modules.
    """
    files: set[str] = set()
    for _, prefixes in SURFACES.values():
        for prefix in prefixes:
            file = prefix.partition("::")[0].removesuffix(".py")
            files.add(f"{file}.py")
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"]
    done = forked_processes.run(
        [*command, "--assert=plain", *sorted(files)],
        forked_processes.environment_with({}),
        ROOT,
        stdin="",
        timeout_s=COLLECTED_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout
    return [line for line in done.stdout.splitlines() if "::" in line]


def counts_of(cases: Sequence[str]) -> dict[str, int]:
    """Return the number of cases of each surface."""
    return {
        surface: sum(case.startswith(prefixes) for case in cases)
        for surface, (_, prefixes) in SURFACES.items()
    }


def too_few(cases: Sequence[str]) -> dict[str, int]:
    """Return the surfaces with too few cases, with their number."""
    counts = counts_of(cases)
    return {
        surface: counts[surface]
        for surface, (least, _) in SURFACES.items()
        if counts[surface] < least
    }


def missing(cases: Sequence[str], surface: str) -> list[str]:
    """Return the named tests of a surface that have no case."""
    return [
        prefix
        for prefix in SURFACES[surface][1]
        if not any(case.startswith(prefix) for case in cases)
    ]


def test_each_surface_has_its_attacks(cases: list[str]) -> None:
    counts = counts_of(cases)

    assert not too_few(cases)
    assert sum(counts.values()) - counts["Redis"] >= IN_ALL


@pytest.mark.parametrize("surface", SURFACES)
def test_each_named_test_exists(cases: list[str], surface: str) -> None:
    assert not missing(cases, surface)
