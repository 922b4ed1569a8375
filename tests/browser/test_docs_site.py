"""The documentation site works in a real browser from disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.driver import Browser
from tests.docs.pages import build_site
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HEIGHTS = """
return [...document.querySelectorAll('pre.mermaid, div.mermaid')].map(
  diagram => diagram.localName === 'div' ? diagram.offsetHeight : 0
)
"""
"""Script that returns the height of each diagram. A diagram that is not drawn is a `pre`."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    exit_code, output = build_site(folder)
    assert exit_code == 0, output
    return folder


@pytest.mark.parametrize(
    "page", ["index.html", "concepts/how-it-works.html", "concepts/joins.html"]
)
def test_diagrams_are_drawn_without_a_network(window: Browser, site: Path, page: str) -> None:
    window.open(site / page)

    wait_until(lambda: min(window.run(HEIGHTS), default=0) > 50, expected="the diagrams")

    assert window.console_errors() == []


def test_the_search_works_without_a_network(window: Browser, site: Path) -> None:
    window.open(site / "index.html")
    window.click("label[for=__search].md-header__button")

    window.type("input.md-search__input", "idempotency")

    wait_until(lambda: "idempotency" in window.text(".md-search-result__list"), expected="a hit")
    assert window.console_errors() == []
