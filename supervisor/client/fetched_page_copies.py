"""Fetched pages that a job passes to another job together with its results.

Web pages, cited results of tools and files of a sandbox are stored for one job. Without them, the
other job could not open or cite the sources of the results that it gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from handoff_queue.shared.store.script_arguments import iterate_rows
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import Document, HandoffResult
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import compute_digest

MAX_PASSED_CHARS = 40_000_000
"""Characters of all texts that are passed together: twice the longest document by default. The
process has all these texts in memory.
"""
_PAGES_AT_ONCE = 20
"""Pages whose texts are read in one round trip."""
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_SOURCE = re.compile(r"(?:https?://|tool:)[^\s\"'`<>\[\]()\\]+")
"""A URL, or the name of a tool's result."""
_FILE = re.compile(r"tool:[^\s/:]+/[\w-]+#\w+/")
"""Beginning of the name of a file of a tool. The rest may have spaces and brackets."""
_MAX_FILE_CHARS = 700
"""Characters of the rest, at most: six parts of a path."""
_MAX_FILE_PLACES = 1_000
"""Places of texts that name files of one call, at most."""
_GOES_ON = re.compile(r"\w|[/.]\w")
"""The end of a shorter name within a longer one."""
_EMPTY = compute_digest("")


@dataclass(frozen=True, slots=True)
class PassedPages:
    """Pages, and their texts in the same order."""

    pages: tuple[Document, ...] = ()
    texts: tuple[str, ...] = ()


NO_PAGES = PassedPages()


def load_passed_pages(
    store: Store,
    job_id: JobId,
    results: Iterable[str],
    rename: Callable[[str], str] = lambda name: name,
) -> PassedPages:
    """Return the fetched pages of a job that some of its results cite or name.

    A worker may write any entry into the list of pages. So only a page is passed that a result
    cites under the same name, or that the text of a result names. A page whose text is missing or
    has another digest is left out, and so is a page after the first `MAX_PASSED_CHARS`.

    Args:
        results: results of the job as JSON, as the other job gets them. Texts that are not a
            result are left out.
        rename: returns the name of a page in the other job.

    Raises:
        StoreUnavailable: Redis is unreachable.
        NoTenantKey: the pages are encrypted, and this process does not have the key.
    """
    names = _Names.collect(results)
    if names.is_empty:
        return NO_PAGES
    named_pages: list[Document] = []
    for own_page in reversed(store.payloads.load_fetched_pages(job_id)):  # the oldest first
        page = own_page.model_copy(update={"path": rename(own_page.path)})
        if names.has(page):
            named_pages.append(page)
    pages: list[Document] = []
    texts: list[str] = []
    room = MAX_PASSED_CHARS
    for part in iterate_rows(named_pages, _PAGES_AT_ONCE):
        texts_by_digest = store.payloads.get(job_id, [], results=[page.digest for page in part])
        for page in part:
            text = texts_by_digest[page.digest]
            if (text or page.digest == _EMPTY) and len(text) <= room:
                room -= len(text)
                pages.append(page.model_copy(update={"chars": len(text)}))
                texts.append(text)
    return PassedPages(tuple(pages), tuple(texts))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of pages in some results."""

    cited: set[tuple[str, str]]
    """Sources of citations, with their digests."""
    written: set[str]
    """Digests, URLs and names of tools' results in the texts."""
    file_places: dict[str, set[str]]
    """The texts after each `_FILE`, to the end of the line."""

    @classmethod
    def collect(cls, results: Iterable[str]) -> _Names:
        names = cls(set(), set(), {})
        for text in results:
            try:
                result = HandoffResult.from_json(text)
            except MalformedMessage:
                continue
            output = result.output
            if not isinstance(output, str):
                output = json.dumps(output, ensure_ascii=False)
            names._add_text(output)
            for claim in result.claims:
                names._add_text(claim.text)
                for citation in claim.sources:
                    names.cited.add((citation.source, citation.digest))
        return names

    def _add_text(self, text: str) -> None:
        self.written.update(_DIGEST.findall(text))
        for source in _SOURCE.findall(text):
            self.written.update((source, source.rstrip(".,;:!?*_")))
        for begin in _FILE.finditer(text):
            places = self.file_places.setdefault(begin[0], set())
            if len(places) < _MAX_FILE_PLACES:
                rest = text[begin.end() : begin.end() + _MAX_FILE_CHARS]
                places.add(rest.partition("\n")[0])

    @property
    def is_empty(self) -> bool:
        return not self.cited and not self.written

    def has(self, page: Document) -> bool:
        """Return whether a result cites or names the page."""
        is_cited = (page.path, page.digest) in self.cited
        is_written = page.digest in self.written or page.path in self.written
        return is_cited or is_written or self._names_file(page.path)

    def _names_file(self, path: str) -> bool:
        """Return whether a text names a file of a tool, also one with spaces in its name."""
        begin = _FILE.match(path)
        if begin is None:
            return False
        name = path[begin.end() :]
        for place in self.file_places.get(begin[0], ()):
            if place.startswith(name) and not _GOES_ON.match(place, len(name)):
                return True
        return False
