"""Hooks of MkDocs: folders in the navigation, and links to files outside of `docs/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Replace each folder in `nav` (`decisions/`) by its pages that `nav` does not list."""
    listed = set(pages_in(config.nav))
    config.nav = expanded(config.nav, listed)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace each link to a file outside of `docs/` by its text: the site lacks such files.

    The link works in the repository. Raises ValueError if the file does not exist.
    """
    folder = (DOCS / page.file.src_uri).parent
    return LINK.sub(lambda link: link_text(link, folder), markdown)


def pages_in(entry: Any) -> list[str]:
    """Return the pages of a part of `nav`."""
    match entry:
        case str():
            return [entry]
        case list():
            return [page for part in entry for page in pages_in(part)]
        case dict():
            return [page for part in entry.values() for page in pages_in(part)]
    return []


def expanded(entry: Any, listed: set[str]) -> Any:
    """Return a part of `nav` with pages instead of folders."""
    if isinstance(entry, dict):
        return {title: expanded(part, listed) for title, part in entry.items()}
    if isinstance(entry, str) and entry.endswith("/"):
        return pages_of_folder(entry, listed)
    if not isinstance(entry, list):
        return entry
    parts: list[Any] = []
    for part in entry:
        pages = expanded(part, listed)
        if isinstance(part, str) and isinstance(pages, list):
            parts.extend(pages)
        else:
            parts.append(pages)
    return parts


def pages_of_folder(folder: str, listed: set[str]) -> list[str]:
    pages = sorted(str(path.relative_to(DOCS)) for path in (DOCS / folder).glob("*.md"))
    items: list[str] = []
    for page in pages:
        if page not in listed:
            items.append(page)
    return items


def link_text(link: re.Match[str], folder: Path) -> str:
    """Return the text of a link that leaves `docs/`, and any other link as it is."""
    text, target = link.groups()
    if not target.startswith("../"):
        return link[0]
    path = (folder / target.partition("#")[0]).resolve()
    if path.is_relative_to(DOCS):
        return link[0]
    if not path.exists():
        raise ValueError(f"a link leads to a file that does not exist: {target}")
    return text
