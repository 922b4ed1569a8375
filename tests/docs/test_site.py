"""`make docs` builds a site without a warning, and the site loads nothing from other servers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.generator.site_hooks import DOCS, LINK, expanded, link_text, pages_in
from tests.docs.pages import ROOT, build_site

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""The elements by which a page loads a file, and the attribute that names it."""
ELSEWHERE = re.compile(r"(?:https?:)?//")


class Loads(HTMLParser):
    """The addresses of all files that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


@pytest.mark.slow
def test_the_site_has_a_page_for_each_page_of_docs(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}

    assert {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} <= built


@pytest.mark.slow
def test_a_page_loads_nothing_from_another_server(site: Path) -> None:
    remote = []
    for path in site.rglob("*.html"):
        page = Loads()
        page.feed(path.read_text())
        remote += [address for address in page.addresses if ELSEWHERE.match(address)]
    for path in site.rglob("*.css"):
        remote += re.findall(r"url\([\"']?(?:https?:)?//[^)]*", path.read_text())

    assert remote == []


def test_a_folder_in_the_navigation_stands_for_its_pages() -> None:
    nav = [{"Project": ["roadmap.md", {"Decisions": "decisions/"}, "images/"]}]

    (project,) = expanded(nav, set(pages_in(nav)))

    roadmap, decisions = project["Project"]
    assert roadmap == "roadmap.md"
    assert "decisions/0001-waiting-sets.md" in decisions["Decisions"]


def test_a_listed_page_is_not_repeated_by_its_folder() -> None:
    nav = ["decisions/0001-waiting-sets.md", "decisions/"]

    pages = expanded(nav, set(pages_in(nav)))

    assert pages.count("decisions/0001-waiting-sets.md") == 1


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[changes](../CHANGELOG.md)", "changes"),
        ("[index](../docs/index.md)", "[index](../docs/index.md)"),
        ("[modes](modes.md#one)", "[modes](modes.md#one)"),
    ],
)
def test_the_site_shows_the_text_of_a_link_to_a_file_outside_of_docs(link: str, shown: str) -> None:
    match = LINK.match(link)
    assert match

    assert link_text(match, DOCS) == shown


def test_a_link_to_a_file_that_does_not_exist_stops_the_build() -> None:
    match = LINK.match("[gone](../gone.md)")
    assert match

    with pytest.raises(ValueError, match="does not exist"):
        link_text(match, DOCS)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_an_anchor_in_a_page_outside_of_docs_exists(name: str) -> None:
    """MkDocs checks the pages of the site."""
    missing = [
        target
        for _, target in LINK.findall((ROOT / name).read_text())
        if "#" in target and "://" not in target
        if target.partition("#")[2] not in anchors(ROOT / target.partition("#")[0])
    ]

    assert missing == []


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
