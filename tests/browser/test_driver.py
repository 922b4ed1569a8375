"""The tests' own control of the browser is as patient as a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.driver import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
MOVING = """<!doctype html><title>A page that moves</title>
<div id="space"></div>
<button id="wanted" style="display: block; height: 40px">Wanted</button>
<script>
  window.clicks = [];
  const noteClick = (event) => window.clicks.push(event.target.id || "page");
  document.addEventListener("click", noteClick);
  const move = () => { document.getElementById("space").style.height = "200px"; };
  document.getElementById("wanted").addEventListener("mousedown", move, { once: true });
</script>
"""


def test_a_click_reaches_an_element_that_moves_under_the_mouse(
    window: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "moving.html"
    page.write_text(MOVING)
    window.open(page)

    window.click("#wanted")

    assert window.run("return window.clicks") == ["wanted"]
