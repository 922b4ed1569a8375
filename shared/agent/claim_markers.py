"""Markers of claims in an output. Pure.

A marker follows the sentence of its claim. One function adds a missing marker after the text of
its claim. Another one returns the sentence before each marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter

from handoff_queue.shared.agent.quote_search import FoldedText
from handoff_queue.shared.types.citation_markers import MARKER, split_claim_ids
from handoff_queue.shared.types.handoff import Claim

MIN_CHARS = 8
"""Characters of the shortest text that is searched. A shorter one may occur by chance."""
_END_OF_SENTENCE = ".!?;:。！？ \n"
_END_OF_LINK = "]("
_SENTENCE_BORDER = re.compile(
    rf"""[.!?][*_)"']*+(?:{MARKER.pattern})*+\s+|[。！？][*_)"'”」』）]*+(?=\S)"""
)
"""The end of a sentence within a line, up to the next sentence. Chinese and Japanese have no space
between two sentences.
"""
_MAX_SENTENCE_CHARS = 2_000
"""Characters before a marker that are searched. All of a line would take quadratic time."""
_SIGNS = "#*->|_ \t\n"
"""Markdown before and after a sentence."""


def find_sentences_by_claim(output: str) -> dict[str, str]:
    """Return the sentence before the first marker of each claim, without markers and without the
    Markdown around it: id of the claim -> sentence.
    """
    sentences: dict[str, str] = {}
    sentence: str | None = None
    sentence_end = last_end = 0
    for match in MARKER.finditer(output):
        if not last_end or output[last_end : match.start()].strip():
            sentence, sentence_end = None, match.start()
        last_end = match.end()
        names = split_claim_ids(match[1])
        if not all(name in sentences for name in names):
            if sentence is None:
                sentence = _find_sentence_before(output, sentence_end)
            for name in names:
                sentences.setdefault(name, sentence)
    return sentences


def _find_sentence_before(output: str, end: int) -> str:
    """Return the sentence that ends at an index of the output. No marker is directly before the
    index.
    """
    before = output[max(0, end - _MAX_SENTENCE_CHARS) : end].rstrip()
    line = before[before.rfind("\n") + 1 :].lstrip()
    borders = list(_SENTENCE_BORDER.finditer(line))
    if borders:
        line = line[borders[-1].end() :]
    return MARKER.sub("", line).strip(_SIGNS)


def place_markers(output: str, claims: Iterable[Claim]) -> tuple[str, list[str]]:
    """Return the output with a marker for each claim that it contains, and the ids of these claims.

    The marker follows the first occurrence of the claim's text, or else of a quote of its sources.

    Args:
        output: text with qualified markers.
        claims: claims without a marker in the output.
    """
    folded = FoldedText(output)
    ends: list[tuple[int, str]] = []
    for claim in claims:
        phrases = [claim.text, *(source.quote for source in claim.sources)]
        end = _find_end_of_first(phrases, folded)
        if end is not None:
            ends.append((end, claim.id))
    ends.sort(key=itemgetter(0))
    pieces: list[str] = []
    start = 0
    for end, name in ends:
        space = " "
        if end == start and pieces:
            space = ""
        pieces.append(f"{output[start:end]}{space}[{name}]")
        start = end
    return "".join(pieces) + output[start:], [name for _, name in ends]


def _find_end_of_first(phrases: Iterable[str], folded: FoldedText) -> int | None:
    """Return the end index of the first phrase that the text contains as whole words, or None."""
    for phrase in phrases:
        words = phrase.strip().rstrip(_END_OF_SENTENCE)
        if len(words) < MIN_CHARS:
            continue
        span = folded.find(words)
        if span is not None:
            return _skip_link(span.end, folded.text)
    return None


def _skip_link(end: int, text: str) -> int:
    """Return the end index of the link whose text ends at `end`, or `end` if there is no link."""
    if not text.startswith(_END_OF_LINK, end):
        return end
    close = text.find(")", end)
    if close < 0:
        return end
    return close + 1
