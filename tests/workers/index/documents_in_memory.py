"""Documents of a job with their texts in memory."""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.message import compute_digest


class Library:
    """Documents by path, with a `text_of` that counts its calls."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {compute_digest(text): text for text in texts.values()}
        self.fetched: list[str] = []
        self.manifest = Manifest(
            documents=tuple(
                Document(
                    path=path,
                    digest=compute_digest(text),
                    media_type="text/markdown",
                    chars=len(text),
                )
                for path, text in sorted(texts.items())
            )
        )

    def text_of(self, digest: str) -> str:
        self.fetched.append(digest)
        if digest not in self._texts:
            raise ToolFailed("the text is gone")
        return self._texts[digest]

    def add(self, text: str) -> None:
        """Add a text without changing the manifest, as a fetched page does."""
        self._texts[compute_digest(text)] = text

    def lose(self, path: str) -> None:
        """Remove the document, as after its expiry in the store."""
        del self._texts[
            next(document.digest for document in self.manifest.documents if document.path == path)
        ]
