"""The citable sources of a handoff: their look-up by name, and the search of quotes in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from handoff_queue.shared.agent.answer_format import Defect
from handoff_queue.shared.agent.own_words import has_own_sentence, repeats_own_words
from handoff_queue.shared.agent.quote_search import MAX_QUOTE_CHARS, FoldedText
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.text.unicode_text import to_nfc
from handoff_queue.shared.types.handoff import Citation, Document, Manifest
from handoff_queue.shared.types.memory_notes import MEMORY
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import is_output_of_code

MAX_TEXTS_OF_SOURCE = 8
"""Texts of one source in which a quote is searched, the newest first."""


@dataclass(frozen=True, slots=True)
class _SourceText:
    """A source in which a quote is searched."""

    path: str
    """Path of a document, or name of the result of a tool."""
    text: str
    document: Document | None
    """None: the source is the result of a tool."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Citable sources: the job's documents, pages that tools fetched, and results of tools."""

    text_of: Callable[[str], str]
    """Returns the extracted text of the document with a digest. Raises ToolFailed."""
    manifest: Manifest = field(default_factory=Manifest)
    load_fetched_pages: Callable[[], Iterable[Document]] = tuple
    """Returns the documents that tools have kept (`ToolContext.keep_document`), the newest first.
    """
    results: Mapping[str, str] = field(default_factory=dict)
    """Results of the user's tools in this handoff as the model saw them, by
    `ToolObserved.source`.
    """
    load_seen_texts: Callable[[], Iterable[str]] | None = None
    """Returns the texts that the model has seen in this handoff. None: they are unknown."""
    keep: Callable[[str, str, str], Document] | None = None
    """Stores a cited tool result as a document. Its arguments are the source, the media type
    and the text.
    """
    list_own_words: Callable[[str], Sequence[str]] = lambda _source: ()
    """Returns the texts that the model wrote into calls before it saw the result of a tool, or a
    page.
    """
    _fold: Callable[[str], FoldedText] = field(
        default_factory=lambda: lru_cache(maxsize=MAX_TEXTS_OF_SOURCE)(FoldedText),
        repr=False,
        compare=False,
    )
    """Returns the `FoldedText` of a text. It is cached, because many quotes come from few
    documents.
    """

    def find_documents(self, source: str) -> list[Document]:
        """Return the documents with this name, the newest first. See `find_sources`."""
        return find_sources(source, (*self.manifest.documents, *self.load_fetched_pages()))

    def build_citation(
        self, source: str, quote: str, *, may_be_abridged: bool = False
    ) -> Citation | Defect:
        """Return the citation with the place of the quote in the source. If the source or the
        quote does not exist, return the defect.

        Args:
            may_be_abridged: True if the quote may have only the first and the last words of a
                passage. The citation has the whole passage.

        Raises:
            StoreError: the cited result of a tool cannot be stored.
        """
        sources = self._read_sources(source)
        if isinstance(sources, Defect):
            return sources
        for cited in sources:
            folded = self._fold(cited.text)
            span = folded.find(quote[: 2 * MAX_QUOTE_CHARS])
            if span is None and may_be_abridged:
                span = folded.find_passage(quote[: 2 * MAX_QUOTE_CHARS])
            if span is None:
                continue
            document = cited.document
            return Citation(
                source=cited.path,
                digest=document.digest if document else self._store_tool_result(cited),
                start=span.start,
                end=span.end,
                quote=cited.text[span.start : span.end],
            )
        return self._describe_missing_quote(sources[0], quote)

    def _read_sources(self, source: str) -> list[_SourceText] | Defect:
        """Return the texts with this name, at least one, or the defect. A tool's result in this
        handoff has one text. A page or a note may have changed: its newest texts come first.
        """
        name = self._find_result_name(source)
        if name is not None:
            return [_SourceText(name, self.results[name], None)]
        documents = self.find_documents(source)
        if not documents:
            return Defect(
                f'there is no source "{source[:200]}"', "name one exactly as it was given to you"
            )
        texts: list[_SourceText] = []
        why = ""
        for document in documents[:MAX_TEXTS_OF_SOURCE]:
            try:
                texts.append(_SourceText(document.path, self.text_of(document.digest), document))
            except ToolFailed as error:
                why = why or str(error)
        if not texts:
            return Defect(f'the source "{documents[0].path}" cannot be read: {why}')
        return texts

    def _describe_missing_quote(self, source: _SourceText, quote: str) -> Defect:
        short = " ".join(quote.split())[:120]
        if source.document is not None and not self._was_opened(source.document):
            return Defect(
                f'this quote is not in "{source.path}", which was never opened: "{short}"',
                "open it and copy a quote from its text, or leave this source out",
            )
        return Defect(
            f'this quote is not in "{source.path}": "{short}"',
            "copy the whole sentence letter by letter, or leave it out",
        )

    def _was_opened(self, document: Document) -> bool:
        """Return whether the model has seen text of a document. Results of tools name its source
        as a JSON string, and notes of other steps name it before a quote.
        """
        if self.load_seen_texts is None:
            return True
        quoted_path = json.dumps(document.path, ensure_ascii=False)
        note_start = f'{quoted_path[1:-1]}: "'
        return any(quoted_path in text or note_start in text for text in self.load_seen_texts())

    def repeats_own_words(self, citation: Citation, statement: str) -> bool:
        """Return whether a quote proves nothing for a statement, because the model wrote its words
        into a call.
        """
        own_words = self._find_own_words(citation.source)
        return repeats_own_words(citation.quote, statement, own_words)

    def has_own_sentence(self, citation: Citation, statement: str) -> bool:
        """Return whether a quote or one of its sentences proves nothing for a statement, because
        the model wrote its words into a call.
        """
        own_words = self._find_own_words(citation.source)
        return has_own_sentence(citation.quote, statement, own_words)

    def _find_own_words(self, source: str) -> Sequence[str]:
        """Return the texts of the model that a source may repeat. A document of the user and a
        checked note do not repeat them. Each word in the output of code is the model's, and its
        source says so.
        """
        is_document = any(document.path == source for document in self.manifest.documents)
        if is_document or source.startswith(f"{MEMORY}:") or is_output_of_code(source):
            return ()
        return self.list_own_words(source)

    def prove(self, source: str, quote: str) -> Citation:
        """Return the citation with the place of the quote in the source, for a tool.

        Raises:
            ToolFailed: the source or the quote does not exist.
            StoreError: the cited result of a tool cannot be stored.
        """
        citation = self.build_citation(source, quote)
        if isinstance(citation, Defect):
            raise ToolFailed(citation.for_model)
        return citation

    def _find_result_name(self, source: str) -> str | None:
        """Return the full name of a tool result. None: no result or several results match.

        `source` may lack the step and the attempt. It may also lack the number if the tool was
        called once.
        """
        wanted_name = (
            source.strip().removeprefix("[source: ").removesuffix("]").removeprefix("tool:")
        )
        matches = list[str]()
        for name in self.results:
            full_name = name.removeprefix("tool:")
            call = full_name.partition("/")[2]
            if wanted_name in (full_name, call, call.partition("#")[0]):
                matches.append(name)
        if len(matches) == 1:
            return matches[0]
        return None

    def _store_tool_result(self, result: _SourceText) -> str:
        """Store the result of a tool as a document, unless it is stored already. Return its
        digest.
        """
        digest = compute_digest(result.text)
        stored_pages = [(page.path, page.digest) for page in self.load_fetched_pages()]
        if self.keep is not None and (result.path, digest) not in stored_pages:
            self.keep(result.path, "text/plain", result.text)
        return digest


def find_sources(name: str, documents: Iterable[Document]) -> list[Document]:
    """Return the documents with this path or URL, in the given order. Several fetched pages may
    have one name: a page, or a note, that has changed during the job.

    Without an equal path, return the documents of the only path that ends with `name`, or the
    other way round. The source of a note may lack its document: `memory:a/b` for
    `memory:a/b (guide.md)`.

    Args:
        documents: documents of the job, and then fetched pages, the newest first.
    """
    wanted_path = to_nfc(name.strip())
    equal: list[Document] = []
    similar: dict[str, list[Document]] = {}
    for document in documents:
        path = to_nfc(document.path)
        if path == wanted_path:
            equal.append(document)
            continue
        is_note = path.startswith(f"{wanted_path} (") and path.endswith(")")
        has_end = path.endswith(f"/{wanted_path}") or wanted_path.endswith(f"/{path}")
        if wanted_path and (is_note or has_end):
            similar.setdefault(path, []).append(document)
    if equal:
        return equal
    candidates: list[Document] = []
    for same_path in similar.values():
        candidates += same_path
    if len(similar) == 1 or len({document.digest for document in candidates}) == 1:
        return candidates
    return []
