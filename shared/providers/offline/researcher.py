"""The researcher's part: search for the thing and each aspect at once, read the best hits,
then state what they say, verbatim.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handoff_queue.shared.providers.offline import writer as writing
from handoff_queue.shared.providers.offline.answerable_requests import why_not_answerable
from handoff_queue.shared.providers.offline.aspects import content_words, known_aspects
from handoff_queue.shared.providers.offline.conversation import Conversation, KnownClaim, Result
from handoff_queue.shared.providers.offline.findings import Finding, find
from handoff_queue.shared.providers.offline.payloads import hits_in, json_in, page_in
from handoff_queue.shared.providers.offline.request_questions import joined, request_in
from handoff_queue.shared.providers.offline.sentences import Sentence, sentences_of, title_of
from handoff_queue.shared.providers.offline.statements import marked, not_found
from handoff_queue.shared.providers.offline.stems import has_stem, stems_of
from handoff_queue.shared.providers.offline.tables import delimiter_of
from handoff_queue.shared.providers.offline.topic import FIT, Topic, mentions, topics_of

SEARCH, READ = "search_documents", "read_document"
_MOST_SEARCHES = 6
"""For one topic."""
_MOST_CALLS = 12
"""In one turn."""
_MOST_READS = 3
_MOST_HITS = 8
_MOST_QUERY_WORDS = 20
_PAGE_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call to make in this turn."""

    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Researched:
    """What came out, by topic."""

    parts: tuple[tuple[Topic, tuple[Finding, ...], tuple[str, ...]], ...]
    """Each topic's findings, and the aspects that nothing was found for."""
    searched: int | None
    """Documents; None: not known."""


def next_calls(conversation: Conversation) -> list[ToolCall]:
    """The searches, then the pages to read; empty when there is enough (or nothing) to answer with."""
    if _why_not(conversation):
        return []
    topics = _topics(conversation)
    done = [
        (
            call.name,
            call.input.get("query") or (call.input.get("source"), call.input.get("offset", 0)),
        )
        for call in conversation.calls
    ]
    calls = []
    if SEARCH in conversation.tools:
        queries = list(dict.fromkeys(query for topic in topics for query in _queries(topic)))[
            :_MOST_CALLS
        ]
        calls = [
            ToolCall(SEARCH, {"query": query, "limit": _MOST_HITS})
            for query in queries
            if (SEARCH, query) not in done
        ]
    if not calls and READ in conversation.tools:
        pages = list(
            dict.fromkeys(page for topic in topics for page in _pages(conversation, topic))
        )[:_MOST_CALLS]
        calls = [
            ToolCall(READ, {"source": source, "offset": offset})
            for source, offset in pages
            if (READ, (source, offset)) not in done
        ]
    return calls if conversation.parallel else calls[:1]


def research(conversation: Conversation) -> Researched:
    """The best sentences of everything that was read."""
    dropped = _refused_quotes(conversation)
    sentences = [
        sentence
        for sentence in _sentences(conversation)
        if not any(quote in sentence.quote for quote in dropped)
    ]
    parts = []
    for topic in _topics(conversation):
        findings, gaps = find(topic, sentences)
        parts.append((topic, tuple(findings), tuple(gaps)))
    counts = [searched for _, searched in _searches(conversation) if searched is not None]
    return Researched(tuple(parts), max(counts, default=conversation.documents))


def envelope(conversation: Conversation) -> dict[str, Any]:
    """The answer envelope, with `output` as Markdown."""
    if why := _why_not(conversation):
        return {
            "status": "partial",
            "output": why,
            "claims": [],
            "confidence": 0.0,
            "needs": None,
            "problem": why,
        }
    done = research(conversation)
    sentences = list(
        dict.fromkeys(finding.sentence for _, findings, _ in done.parts for finding in findings)
    )
    ids = {sentence: f"c{number}" for number, sentence in enumerate(sentences, 1)}
    claims = [
        {
            "id": ids[each],
            "text": each.standing_alone,
            "sources": [{"source": each.source, "quote": each.quote}],
        }
        for each in sentences
    ]
    wanted = sum(len(topic.aspects) or 1 for topic, _, _ in done.parts)
    missing = sum(
        len(gaps) if findings else len(topic.aspects) or 1 for topic, findings, gaps in done.parts
    )
    without = [topic for topic, findings, _ in done.parts if not findings]
    output = "\n\n".join(
        _section(topic, findings, gaps, ids) for topic, findings, gaps in done.parts
    )
    return {
        "status": "ok" if claims else "partial" if done.searched else "needs_input",
        "output": _drafted(conversation, output, claims)
        if len(done.parts) > 1 and claims
        else output,
        "claims": claims,
        "confidence": round(0.3 + 0.6 * (1 - missing / wanted), 2) if claims else 0.0,
        "needs": None if claims else joined([topic.needs for topic in without]),
        "problem": None
        if claims
        else f"not found in the documents: {joined([topic.gap for topic in without])}",
    }


def _drafted(conversation: Conversation, notes: str, claims: list[dict[str, Any]]) -> str:
    """Whoever compares things alone writes it up like the writer does."""
    known = tuple(
        KnownClaim(claim["id"], claim["text"], claim["sources"][0]["source"]) for claim in claims
    )
    return writing.draft(replace(conversation, results=(Result("answer", "ok", notes, known),)))


def _why_not(conversation: Conversation) -> str | None:
    """Return why quotes cannot answer the task. None: they may."""
    questions = [topic.question for topic in _topics(conversation) if topic.thing is None]
    return next(
        filter(None, map(why_not_answerable, [request_in(conversation.task), *questions])), None
    )


def _topics(conversation: Conversation) -> list[Topic]:
    """The task's topics, and with them the aspects that a reviewer asks for again."""
    again = [each for text in conversation.feedback for each in known_aspects(text)]
    topics = topics_of(conversation.task)
    return [
        replace(
            topic,
            aspects=(
                *topic.aspects,
                *(
                    each
                    for each in again
                    if topic.aspects and each.key not in {known.key for known in topic.aspects}
                ),
            ),
        )
        for topic in topics
    ]


def _queries(topic: Topic) -> list[str]:
    if topic.thing is None:
        words = " ".join(content_words(topic.question)[:_MOST_QUERY_WORDS])
        return list(
            dict.fromkeys([words or topic.question[:200], *topic.names[: _MOST_SEARCHES - 1]])
        )
    labels = [each.label for each in topic.aspects] or ["overview", "features", "limits"]
    labels = [*labels[: _MOST_SEARCHES - 2], *([FIT.label] if topic.wants_advice else [])]
    return [topic.thing, *(f"{topic.thing} {label}" for label in labels)]


def _searches(conversation: Conversation) -> list[tuple[list[dict[str, Any]], int | None]]:
    return [
        hits_in(call.result)
        for call in conversation.calls
        if call.name == SEARCH and call.result and not call.is_error
    ]


def _hits(conversation: Conversation) -> list[dict[str, Any]]:
    return [hit for hits, _ in _searches(conversation) for hit in hits]


def _pages(conversation: Conversation, topic: Topic) -> list[tuple[str, int]]:
    """Which documents to read, and from where: the best hits, those that are about the thing first."""
    weight: dict[str, float] = defaultdict(float)
    starts: dict[str, int] = {}
    for hit in _hits(conversation):
        source = hit["source"]
        rank = float(hit.get("score") or 0.0) if isinstance(hit.get("score"), int | float) else 0.0
        named = any(mentions(name, hit["snippet"]) for name in topic.names)
        weight[source] += max(rank, 0.01) * (2 if named else 1)
        start = hit["start"] if isinstance(hit.get("start"), int) else 0
        starts[source] = min(starts.get(source, start), start)
    for path in conversation.paths:
        if any(mentions(word, title_of(path)) for word in topic.names) or _is_named(path, topic):
            weight[path] += 1.0
            starts[path] = 0
    for source in weight:
        weight[source] *= 4 if any(mentions(name, title_of(source)) for name in topic.names) else 1
    best = sorted(weight, key=lambda source: (-weight[source], source))[
        : _MOST_READS if topic.names or topic.stems else _MOST_CALLS
    ]
    return [
        (source, 0 if starts[source] < _PAGE_CHARS - 1_000 else max(0, starts[source] - 1_000))
        for source in best
    ]


def _is_named(path: str, topic: Topic) -> bool:
    """Whether a subject that is no question names a document; one without words of its own
    ("the documents") names them all.
    """
    return not topic.question.endswith("?") and all(
        has_stem(each, stems_of(title_of(path))) for each in topic.stems
    )


def _sentences(conversation: Conversation) -> list[Sentence]:
    """Whole sentences of the pages read, then of the hits in documents that were not."""
    found: list[Sentence] = []
    read = set()
    for call in conversation.calls:
        page = (
            page_in(call.result)
            if call.name == READ and call.result and not call.is_error
            else None
        )
        if page:
            source, offset, total, text = page
            read.add(source)
            found += sentences_of(
                text, source, starts_whole=offset == 0, ends_whole=offset + len(text) >= total
            )
    for hit in _hits(conversation):
        if hit["source"] not in read:
            found += _of_hit(hit)
    return list({(each.source, each.quote): each for each in reversed(found)}.values())[::-1]


def _of_hit(hit: Mapping[str, Any]) -> list[Sentence]:
    """Return the whole sentences, or rows, of a passage that a search has found."""
    snippet, source = hit["snippet"].strip(" …"), hit["source"]
    if delimiter_of(source, snippet):
        return list(sentences_of(snippet, source, starts_whole=hit.get("start") == 0))
    found = sentences_of(snippet, source, ends_whole=False)
    return [each for each in found if not each.text[:1].islower()]


def _refused_quotes(conversation: Conversation) -> list[str]:
    """Quotes of the last answer that the loop did not accept, by the claims that it named."""
    answer = json_in(conversation.last_answer or "")
    if not isinstance(answer, dict) or not conversation.prompts:
        return []
    told = next((text for text in reversed(conversation.prompts) if "cannot be used" in text), "")
    named = set(re.findall(r"\bc\d+\b", told))
    return [
        source["quote"]
        for claim in answer.get("claims") or ()
        if claim["id"] in named
        for source in claim["sources"]
    ]


def _section(
    topic: Topic, findings: Sequence[Finding], gaps: Sequence[str], ids: Mapping[Sentence, str]
) -> str:
    """A list under a heading for each aspect, or, for a question, just a list; then what was
    not found.
    """
    if not findings:
        return not_found([topic.gap])
    parts = []
    for heading in dict.fromkeys(each.heading if topic.thing else "" for each in findings):
        lines = [
            f"- {marked(each.sentence.standing_alone, ids[each.sentence])}"
            for each in findings
            if not topic.thing or each.heading == heading
        ]
        parts.append("\n".join([*([f"### {heading}", ""] if heading else []), *lines]))
    named = [f"{gap} ({topic.thing})" if topic.thing else gap for gap in gaps]
    return "\n\n".join([*parts, *([not_found(named)] if named else [])])
