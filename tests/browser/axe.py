"""Check the accessibility of the open page with axe-core (https://github.com/dequelabs/axe-core)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tests.browser.driver import Browser

RUN = """
return axe.run({ exclude: ['.answer table'] }, { resultTypes: ['violations'] }).then(({ violations }) =>
  violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${rule.help}: ${node.html.slice(0, 160)}`)));
"""  # noqa: E501 - lines of a script
"""A model writes the tables of an answer, so an empty header in them is not a fault of the page."""


@cache
def source() -> str:
    """Return the script of axe-core. Only its file is used, and not the package around it."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def axe_violations(window: Browser) -> list[str]:
    """Return a line for each element that breaks a rule of axe-core."""
    if not window.run("return 'axe' in window"):
        window.run(f"{source()}\nreturn null")
    violations: list[str] = window.run(RUN)
    return violations
