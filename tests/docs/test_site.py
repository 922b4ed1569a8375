"""`make docs` builds a site without a warning, and the site loads nothing from other servers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.generator.site_hooks import DOCS, LINK, expand_entry, list_pages, strip_link
from tests.docs.pages import ROOT, build_site

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""The elements by which a page loads a file, and the attribute that names it."""
OUTSIDE = [
    *sorted(ROOT.glob("*.md")),
    *(ROOT / folder / "RESULTS.md" for folder in ("benchmarks", "chaos")),
    *(ROOT / "tests" / folder / "README.md" for folder in ("golden", "oracle")),
    ROOT / "examples" / "README.md",
]
"""Pages that are not on the site."""
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
    exit_code, output = build_site(folder)
    assert exit_code == 0, output
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("page.md#here", ""),
        ("gone.md", "a link 'gone.md', but the target is not found"),
        ("page.md#gone", "does not contain an anchor '#gone'"),
        ("#gone", "there is no such anchor"),
    ],
    ids=["a good link", "a broken link", "a broken anchor", "a broken anchor of the same page"],
)
def test_the_build_fails_only_if_a_link_or_an_anchor_is_broken(
    tmp_path: Path, link: str, problem: str
) -> None:
    """The site has the settings of `mkdocs.yml`, but only two pages and no theme."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Index\n\n[A link]({link}) and a [page](page.md).\n")
    (docs / "page.md").write_text("# Page\n\n## Here\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\ntheme: {{name: null, custom_dir: .}}\n"
        "plugins: []\nhooks: []\nextra_javascript: []\nnav: [index.md, page.md]\n"
    )
    (tmp_path / "main.html").write_text("{{ page.content }}")

    exit_code, output = build_site(tmp_path / "site", config)

    assert exit_code == bool(problem), output
    assert problem in output


def test_a_folder_in_the_navigation_stands_for_its_pages() -> None:
    nav = [{"Project": ["roadmap.md", {"Decisions": "decisions/"}, "images/"]}]

    (project,) = expand_entry(nav, set(list_pages(nav)))

    roadmap, decisions = project["Project"]
    assert roadmap == "roadmap.md"
    assert "decisions/0001-waiting-sets.md" in decisions["Decisions"]


def test_a_listed_page_is_not_repeated_by_its_folder() -> None:
    nav = ["decisions/0001-waiting-sets.md", "decisions/"]

    pages = expand_entry(nav, set(list_pages(nav)))

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

    assert strip_link(match, DOCS) == shown


def test_a_link_to_a_file_that_does_not_exist_stops_the_build() -> None:
    match = LINK.match("[gone](../gone.md)")
    assert match

    with pytest.raises(ValueError, match="does not exist"):
        strip_link(match, DOCS)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path, links: list[tuple[str, str]]) -> list[str]:
    """Return the links of a page whose file or heading does not exist."""
    broken = []
    for _, target in links:
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        is_remote = "://" in target or target.startswith("mailto:")
        if not is_remote and (not path.exists() or (anchor and anchor not in anchors(path))):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    return broken


@pytest.mark.parametrize("page", OUTSIDE, ids=[str(page.relative_to(ROOT)) for page in OUTSIDE])
def test_the_links_of_a_page_outside_of_docs_lead_somewhere(page: Path) -> None:
    """MkDocs checks the pages of the site."""
    assert broken_links(page, LINK.findall(page.read_text())) == []


def test_the_links_of_the_site_to_files_outside_of_docs_lead_somewhere() -> None:
    """MkDocs does not see these links, because the site shows only their text."""
    broken = []
    for page in sorted(DOCS.rglob("*.md")):
        links = [link for link in LINK.findall(page.read_text()) if link[1].startswith("../")]
        broken += broken_links(page, links)

    assert broken == []


@pytest.mark.parametrize("target", ["gone.md", "README.md#gone", "#gone", "docs/gone.md#links"])
def test_a_broken_link_of_a_page_outside_of_docs_is_found(target: str) -> None:
    assert broken_links(ROOT / "README.md", [("a link", target)]) == [f"README.md: {target}"]


@pytest.mark.parametrize(
    "page", sorted((DOCS / "concepts").glob("*.md")), ids=lambda page: page.name
)
def test_each_page_about_a_concept_has_a_picture(page: Path) -> None:
    assert "```mermaid\n" in page.read_text()


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
