"""The citable sources of a handoff. Quotes of the answer are searched in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from handoff_queue.shared.agent.quotes import MOST_QUOTE_CHARS, FoldedText
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.characters import to_nfc
from handoff_queue.shared.types.handoff import Citation, Document, Manifest
from handoff_queue.shared.types.message import digest_of


@dataclass(frozen=True, slots=True)
class Sources:
    """Citable sources: the job's documents, pages that tools fetched, and results of tools."""

    text_of: Callable[[str], str]
    """Returns the extracted text of the document with a digest. Raises ToolFailed."""
    manifest: Manifest = field(default_factory=Manifest)
    fetched: Callable[[], Iterable[Document]] = tuple
    """Returns the documents that tools have kept (`ToolContext.keep_document`)."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Results of the user's tools in this handoff as the model saw them, by `ToolObserved.source`."""
    keep: Callable[[str, str, str], Document] | None = None
    """Stores a cited tool result as a document. Its arguments are the source, the media type
    and the text.
    """
    _folded: Callable[[str], FoldedText] = field(
        default_factory=lambda: lru_cache(maxsize=8)(FoldedText), repr=False, compare=False
    )
    """Returns the `FoldedText` of a text. It is cached, because many quotes come from few
    documents.
    """

    def document(self, source: str) -> Document | None:
        """Return the document with this path or URL. None: there is no such document.

        Without an equal path, return the only document whose path ends with `source`, or the
        other way round.
        """
        documents = (*self.manifest.documents, *self.fetched())
        wanted = to_nfc(source.strip())
        matches = dict[str, Document]()
        for document in documents:
            path = to_nfc(document.path)
            if path == wanted:
                return document
            if wanted and (path.endswith(f"/{wanted}") or wanted.endswith(f"/{path}")):
                matches[document.digest] = document
        if len(matches) == 1:
            return next(iter(matches.values()))
        return None

    def citation(self, source: str, quote: str) -> Citation | str:
        """Return the citation with the place of the quote in the source. If the source or the
        quote does not exist, return the problem in one line.

        Raises:
            StoreError: the cited result of a tool cannot be stored.
        """
        name = self._result_name(source)
        document = None
        if name is None:
            document = self.document(source)
        if name is not None:
            path, text = name, self.results[name]
        elif document is not None:
            path = document.path
            try:
                text = self.text_of(document.digest)
            except ToolFailed as error:
                return f'the source "{path}" cannot be read: {error}'
        else:
            return f'there is no source "{source[:200]}"; name one exactly as it was given to you'
        span = self._folded(text).find(quote[: 2 * MOST_QUOTE_CHARS])
        if span is None:
            return f'this quote is not in "{path}": "{" ".join(quote.split())[:120]}"; copy it verbatim, or drop it'
        return Citation(
            source=path,
            digest=document.digest if document else self._kept(path, text),
            start=span.start,
            end=span.end,
            quote=text[span.start : span.end],
        )

    def _result_name(self, source: str) -> str | None:
        """Return the full name of a tool result. None: no result or several results match.

        `source` may lack the step and the attempt. It may also lack the number if the tool was
        called once.
        """
        wanted = source.strip().removeprefix("[source: ").removesuffix("]").removeprefix("tool:")
        matches = list[str]()
        for name in self.results:
            full_name = name.removeprefix("tool:")
            call = full_name.partition("/")[2]
            if wanted in (full_name, call, call.partition("#")[0]):
                matches.append(name)
        if len(matches) == 1:
            return matches[0]
        return None

    def _kept(self, name: str, text: str) -> str:
        """Store the result of a tool as a document, unless it is stored already. Return its digest."""
        digest = digest_of(text)
        is_kept = any(page.path == name and page.digest == digest for page in self.fetched())
        if self.keep is not None and not is_kept:
            self.keep(name, "text/plain", text)
        return digest
