"""The sample files in the docs work with the commands next to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.samples import calls, commands, samples
from tests.e2e.commands import Handoff

pytestmark = pytest.mark.slow
SAMPLES = samples()
LINTS = {
    tuple(words[1:])
    for sample in SAMPLES
    if sample.language == "console"
    for command in commands(sample.text)
    for words in calls(command)
    if words[:2] == ["handoff", "specialists"] and "--lint" in words
}


def of_page(page: str, language: str, holding: str = "") -> str:
    """Return the first sample of a page and language that holds these words."""
    return next(
        one.text
        for one in SAMPLES
        if (one.page, one.language) == (page, language) and holding in one.text
    )


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    """Return a folder with the specialists and tools of the documents, as the commands name them."""
    for folder in ("our-specialists", "our-tools", "my-specialists"):
        (tmp_path / folder).mkdir()
    orders = of_page("docs/how-to/add-a-specialist.md", "markdown")
    (tmp_path / "our-specialists" / "orders.md").write_text(orders)
    (tmp_path / "our-tools" / "shop.py").write_text(of_page("docs/how-to/add-a-tool.md", "python"))
    historian = of_page("README.md", "markdown")
    (tmp_path / "my-specialists" / "historian.md").write_text(historian)
    return Handoff(tmp_path)


@pytest.mark.parametrize("arguments", sorted(LINTS))
def test_the_lint_of_the_documents_has_no_remark(
    handoff: Handoff, arguments: tuple[str, ...]
) -> None:
    done = handoff.run(*arguments)

    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout, last) == (0, "", "12 specialists, 0 remarks")
    assert last in of_page("docs/cli.md", "console", holding="--lint")


def test_the_specialist_of_the_readme_has_no_remark(handoff: Handoff) -> None:
    done = handoff.run("specialists", "--lint", "--specialists", "my-specialists/")

    assert (done.returncode, done.stdout) == (0, "")
