"""Hooks of MkDocs: folders in the navigation, and links to files outside of `docs/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Replace each folder in `nav`, such as `decisions/`, by the pages of the folder that
    `nav` does not list.
    """
    listed = set(list_pages(config.nav))
    config.nav = expand_entry(config.nav, listed)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace each link to a file outside of `docs/` by its text. The file is in the
    repository, but not on the site.

    Raises:
        ValueError: the file does not exist.
    """
    folder = (DOCS / page.file.src_uri).parent
    return LINK.sub(lambda link: strip_link(link, folder), markdown)


def list_pages(entry: Any) -> list[str]:
    """Return the pages of a part of `nav`."""
    if isinstance(entry, str):
        return [entry]
    parts: list[Any] = []
    if isinstance(entry, list):
        parts += entry
    elif isinstance(entry, dict):
        parts += entry.values()
    pages: list[str] = []
    for part in parts:
        pages += list_pages(part)
    return pages


def expand_entry(entry: Any, listed: set[str]) -> Any:
    """Return a part of `nav` with pages instead of folders."""
    if isinstance(entry, dict):
        return {title: expand_entry(part, listed) for title, part in entry.items()}
    if isinstance(entry, str) and entry.endswith("/"):
        return list_pages_of_folder(entry, listed)
    if not isinstance(entry, list):
        return entry
    parts: list[Any] = []
    for part in entry:
        pages = expand_entry(part, listed)
        if isinstance(part, str) and isinstance(pages, list):
            parts.extend(pages)
        else:
            parts.append(pages)
    return parts


def list_pages_of_folder(folder: str, listed: set[str]) -> list[str]:
    """Return the pages of a folder that are not listed, in alphabetical order."""
    pages: list[str] = []
    for path in (DOCS / folder).glob("*.md"):
        page = str(path.relative_to(DOCS))
        if page not in listed:
            pages.append(page)
    return sorted(pages)


def strip_link(link: re.Match[str], folder: Path) -> str:
    """Return only the text of a link to a file outside of `docs/`. Return any other link
    unchanged.
    """
    text, target = link.groups()
    if not target.startswith("../"):
        return link[0]
    path = (folder / target.partition("#")[0]).resolve()
    if path.is_relative_to(DOCS):
        return link[0]
    if not path.exists():
        raise ValueError(f"a link leads to a file that does not exist: {target}")
    return text
