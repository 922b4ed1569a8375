"""The console and the page of `handoff trace` have one file for the rules that both need."""

from __future__ import annotations

import re

from handoff_queue.supervisor.serve.console.pages import read_static_file

RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


def declarations(name: str) -> set[tuple[str, str]]:
    """Return each selector of a style file with each of its declarations, outside of `@media`."""
    stated: set[tuple[str, str]] = set()
    text = re.sub(
        r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", read_static_file(name)[0].decode()
    )
    for selectors, body in RULE.findall(text):
        for selector in selectors.split(","):
            for declaration in filter(None, map(str.strip, body.split(";"))):
                stated.add((selector.strip(), declaration))
    return stated


def test_no_declaration_is_in_two_of_the_style_files() -> None:
    shared, console, trace = map(declarations, ("shared.css", "console.css", "trace.css"))

    assert (":root", "--back: #ffffff") in shared
    assert console & trace == set()
    assert shared & (console | trace) == set()
