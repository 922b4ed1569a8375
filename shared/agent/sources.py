"""Where the quotes of an answer are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from shared.agent.quotes import MOST_QUOTE_CHARS, FoldedText
from shared.agent.tool import ToolFailed
from shared.wire.documents import Document, Manifest
from shared.wire.handoff import Citation


@dataclass(frozen=True, slots=True)
class Sources:
    """Where quotes are looked up: the job's documents, and those that tools have fetched meanwhile."""

    text_of: Callable[[str], str]
    """The extracted text of a document by digest.  Raises: ToolFailed."""
    manifest: Manifest = field(default_factory=Manifest)
    fetched: Callable[[], Iterable[Document]] = tuple
    """Documents that were kept while the handoff ran (`ToolContext.keep_document`)."""
    _folded: Callable[[str], FoldedText] = field(
        default_factory=lambda: lru_cache(maxsize=8)(FoldedText), repr=False, compare=False
    )
    """The folded text of a document by its text: many quotes come from few documents."""

    def document(self, source: str) -> Document | None:
        """By its path or URL; by the end of its path, if only one has it."""
        documents = (*self.manifest.documents, *self.fetched())
        wanted = source.strip()
        for document in documents:
            if document.path == wanted:
                return document
        near = {
            d.digest: d
            for d in documents
            if wanted and (d.path.endswith(f"/{wanted}") or wanted.endswith(f"/{d.path}"))
        }
        return next(iter(near.values())) if len(near) == 1 else None

    def citation(self, source: str, quote: str) -> Citation | str:
        """The checked citation, or why there is none."""
        document = self.document(source)
        if document is None:
            return f'there is no source "{source[:200]}"; name one exactly as it was given to you'
        try:
            text = self.text_of(document.digest)
        except ToolFailed as error:
            return f'the source "{document.path}" cannot be read: {error}'
        span = self._folded(text).find(quote[: 2 * MOST_QUOTE_CHARS])
        if span is None:
            return f'this quote does not stand in "{document.path}": "{" ".join(quote.split())[:120]}"; copy it verbatim, or drop it'
        return Citation(
            source=document.path,
            digest=document.digest,
            start=span.start,
            end=span.end,
            quote=text[span.start : span.end],
        )
