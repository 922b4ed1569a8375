"""A specialist's turns: search, read, state the matching sentences; or write from results."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from handoff_queue.shared.providers.offline.citations import gaps_in
from handoff_queue.shared.providers.offline.conversation import Claim, Conversation, objects_in
from handoff_queue.shared.providers.offline.drafts import claims_by_thing, draft
from handoff_queue.shared.providers.offline.forms import fill, is_valid
from handoff_queue.shared.providers.offline.request_text import (
    request_in,
    understand,
    why_not_answerable,
)
from handoff_queue.shared.providers.offline.selection import Topic, find, topics_of
from handoff_queue.shared.providers.offline.sentences import Sentence, name_of, sentences_of
from handoff_queue.shared.providers.offline.words import content_words, joined, mentions

SEARCH, READ = "search_documents", "read_document"
_MOST_CALLS = 12
"""Tool calls in one turn."""
_MOST_READ = 3
"""Documents to read for one topic."""
_MOST_HITS = 8
_MOST_QUERY_WORDS = 20
_PAGE_CHARS = 11_000
"""A little less than one call of `read_document` returns."""
_BEFORE_HIT_CHARS = 1_000
_TITLE_WEIGHT = 4
"""Factor for a document whose name has a name of the topic."""
_RESEARCH = re.compile(r"(?:research|find|look up|search|investigate)\b", re.IGNORECASE)


def next_calls(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the tool calls of this turn: all searches, then all documents to read."""
    if _is_writing(conversation) or _why_not(conversation):
        return []
    searches: list[dict[str, Any]] = []
    pages: list[dict[str, Any]] = []
    for topic in topics_of(conversation.task):
        for query in _queries(topic):
            searches.append({"query": query, "limit": _MOST_HITS})
        pages += _pages(conversation, topic)
    done = [(call.name, call.input) for call in conversation.calls]
    for name, inputs in ((SEARCH, searches), (READ, pages)):
        calls: list[dict[str, Any]] = []
        for each in inputs[:_MOST_CALLS]:
            call = {"type": "tool_use", "id": "", "name": name, "input": each}
            if (name, each) not in done and call not in calls:
                calls.append(call)
        if calls and name in conversation.tools:
            return calls
    return []


def answer(conversation: Conversation) -> dict[str, Any]:
    """Return the answer envelope."""
    if _is_writing(conversation):
        claims = [claim for result in conversation.results for claim in result.claims]
        envelope = _written(conversation, claims)
    elif why := _why_not(conversation):
        return _envelope("partial", why, problem=why)
    else:
        claims, gaps, silent = _found(conversation)
        envelope = _researched(conversation, claims, gaps, silent)
    form = conversation.output_format
    if form and not is_valid(envelope["output"], form):
        things = understand(request_in(conversation.task)).things
        filled = fill(form, claims, claims_by_thing(things, claims))
        used = [claim for claim in claims if claim.id in filled.used]
        envelope |= {"output": filled.value, "claims": _sourced(used)}
        if filled.missing and envelope["status"] != "needs_input":
            if filled.value is None:
                envelope["status"] = "failed"
            else:
                envelope["status"] = "partial"
            envelope["problem"] = f"the documents do not say: {joined(filled.missing)}"
    return envelope


def _found(conversation: Conversation) -> tuple[list[Claim], list[str], list[Topic]]:
    """Return the claims of the documents, the gaps, and the topics without any claim."""
    sentences = _sentences(conversation)
    found: dict[str, Claim] = {}
    gaps: list[str] = []
    silent: list[Topic] = []
    for topic in topics_of(conversation.task):
        claims, missing = find(topic, sentences)
        gaps += missing
        if claims:
            silent += []
        else:
            silent += [topic]
        for claim in claims:
            found.setdefault(claim.text, replace(claim, id=f"c{len(found) + 1}"))
    return list(found.values()), gaps, silent


def _researched(
    conversation: Conversation, claims: list[Claim], gaps: list[str], silent: list[Topic]
) -> dict[str, Any]:
    output = draft(request_in(conversation.task), claims, gaps)
    if claims:
        return _envelope("ok", output, claims, confidence=0.6 if gaps else 0.9)
    problem = f"not found in the documents: {joined([topic.gap for topic in silent])}"
    searched = [re.search(r'"searched":\s*[1-9]', call.result) for call in conversation.calls]
    if conversation.paths or any(searched):
        return _envelope("partial", output, problem=problem)
    needs = f"documents about {joined([topic.text.rstrip('.') for topic in silent])}"
    return _envelope("needs_input", output, needs=needs, problem=problem)


def _written(conversation: Conversation, claims: list[Claim]) -> dict[str, Any]:
    """Return the envelope of a text whose markers point to claims of the context."""
    request = request_in(conversation.task)
    gaps = [gap for result in conversation.results for gap in gaps_in(result.text)]
    for result in conversation.results:
        if not result.claims and not gaps_in(result.text):
            gaps.append(f"anything from {result.step} ({result.status})")
    by_thing = claims_by_thing(understand(request).things, claims)
    silent = [thing for thing, about in by_thing.items() if not about]
    gaps += [thing for thing in silent if not any(thing in gap for gap in gaps)]
    output = draft(request, claims, list(dict.fromkeys(gaps)))
    if not claims:
        steps = joined([result.step for result in conversation.results])
        return _envelope("partial", output, problem=f"no claims came from {steps}")
    if silent:
        problem = f"the results say nothing about {joined(silent)}"
        return _envelope("partial", output, confidence=0.5, problem=problem)
    return _envelope("ok", output, confidence=0.6 if gaps else 0.9)


def _envelope(
    status: str, output: str, claims: Sequence[Claim] = (), **more: Any
) -> dict[str, Any]:
    envelope = {"status": status, "output": output, "claims": _sourced(claims)}
    return {**envelope, "confidence": 0.0, "needs": None, "problem": None, **more}


def _sourced(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return claims as the envelope has them."""
    values = []
    for claim in claims:
        sources: list[dict[str, str]] = []
        for quote in claim.quotes:
            sources.append({"source": claim.source, "quote": quote})
        values.append({"id": claim.id, "text": claim.text, "sources": sources})
    return values


def _is_writing(conversation: Conversation) -> bool:
    """Return whether the task is to write from results, and not to search for more."""
    names = conversation.tools | {call.name for call in conversation.calls}
    may_search = SEARCH in names and _RESEARCH.match(conversation.task) is not None
    return bool(conversation.results) and not may_search


def _why_not(conversation: Conversation) -> str | None:
    """Return why quotes cannot answer the task, or None."""
    texts = [request_in(conversation.task)]
    for topic in topics_of(conversation.task):
        if not topic.is_thing:
            texts.append(topic.text)
    return next(filter(None, map(why_not_answerable, texts)), None)


def _queries(topic: Topic) -> list[str]:
    if topic.is_thing:
        return [topic.text, *(f"{topic.text} {aspect}" for aspect in topic.aspects)]
    words = " ".join(content_words(topic.text)[:_MOST_QUERY_WORDS])
    return [words or topic.text[:200], *topic.names]


def _pages(conversation: Conversation, topic: Topic) -> list[dict[str, Any]]:
    """Return the documents to read: the documents in the task, then those with the best hits."""
    has_words = bool(content_words(topic.text))
    weights: dict[str, float] = defaultdict(float)
    starts: dict[str, int] = {}
    for hit in _hits(conversation):
        source = hit["source"]
        weights[source] += hit.get("score", 0.0)
        starts[source] = min(starts.get(source, hit["start"]), hit["start"])
    for path in conversation.paths:
        if not has_words or mentions(name_of(path), topic.text):
            weights[path] += 0.0
    for source in weights:
        if any(mentions(name, name_of(source)) for name in topic.names):
            weights[source] *= _TITLE_WEIGHT
    best = sorted(weights, key=lambda source: (-weights[source], source))
    pages = []
    for source in [*_named_in_task(conversation), *best][: _MOST_READ if has_words else None]:
        start = starts.get(source, 0)
        offset = 0
        if start > _PAGE_CHARS - _BEFORE_HIT_CHARS:
            offset = start - _BEFORE_HIT_CHARS
        pages.append({"source": source, "offset": offset})
    return pages


def _named_in_task(conversation: Conversation) -> list[str]:
    paths: list[str] = []
    for path in conversation.paths:
        if path in conversation.task:
            paths.append(path)
    return paths


def _sentences(conversation: Conversation) -> list[Sentence]:
    """Return the sentences of the pages that were read, then those of the search hits.

    A task that names documents gets only the sentences of the named documents.
    """
    found: list[Sentence] = []
    for source, offset, total, text in _pages_read(conversation):
        is_end = offset + len(text) >= total
        found += sentences_of(text, source, is_start=offset == 0, is_end=is_end)
    read = {sentence.source for sentence in found}
    for hit in _hits(conversation):
        if hit["source"] not in read:
            is_start = hit["start"] == 0 or not hit["snippet"][:1].islower()
            found += sentences_of(hit["snippet"], hit["source"], is_start=is_start, is_end=False)
    named = _named_in_task(conversation)
    distinct: dict[tuple[str, str], Sentence] = {}
    for sentence in found:
        if not named or sentence.source in named:
            distinct.setdefault((sentence.source, sentence.quote), sentence)
    return list(distinct.values())


def _pages_read(conversation: Conversation) -> Iterator[tuple[str, int, int, str]]:
    """Yield source, offset, length of the document and text of each page."""
    for call in conversation.calls:
        if call.name == READ and call.result.startswith("{"):
            try:
                page = json.loads(call.result)
            except ValueError:
                continue
            yield page["source"], page["offset"], page["total_chars"], page["text"]


def _hits(conversation: Conversation) -> Iterator[dict[str, Any]]:
    for call in conversation.calls:
        if call.name == SEARCH:
            for hit in objects_in(call.result, "source"):
                if "snippet" in hit:
                    yield hit
