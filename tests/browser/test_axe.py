"""The checks of accessibility find the mistakes of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.axe import axe_violations
from tests.browser.console import accessibility_problems
from tests.browser.driver import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGE = """<!doctype html><html lang="en"><head><title>A page</title></head><body>
<main><h1>A page</h1><p style="color: #aaa; background: #fff">pale</p><button></button>
<select><option>a</option></select><table><tr><th></th><td>1</td></tr></table></main>
</body></html>"""


def test_both_checks_find_mistakes(window: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    window.open(page)

    rules = {violation.partition(":")[0] for violation in axe_violations(window)}
    own = " ".join(accessibility_problems(window))

    assert {"button-name", "color-contrast", "select-name"} <= rules
    for problem in ("no name: <button>", "contrast 2.3", "no scope", "not 1: header"):
        assert problem in own
