"""The researcher's part: search for the thing and each aspect at once, read the best hits, then state what they say, verbatim."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.agent.offline.conversation import Conversation
from shared.agent.offline.findings import Finding, find
from shared.agent.offline.payloads import hits_in, json_in, page_in
from shared.agent.offline.sentences import Sentence, sentences_of
from shared.agent.offline.statements import marked, not_found
from shared.agent.offline.topic import FIT, Topic, mentions, topic_of

SEARCH, READ = "search_documents", "read_document"
_MOST_SEARCHES = 6
_MOST_READS = 3
_MOST_HITS = 8
_PAGE_CHARS = 12_000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call to make in this turn."""

    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Researched:
    """What came out: the findings by heading, and what was not there."""

    topic: Topic
    findings: tuple[Finding, ...]
    gaps: tuple[str, ...]
    searched: int | None


def next_calls(conversation: Conversation) -> list[ToolCall]:
    """The searches, then the pages to read; empty when there is enough (or nothing) to answer with."""
    topic = _topic(conversation)
    done = [(call.name, call.input.get("query") or (call.input.get("source"), call.input.get("offset", 0))) for call in conversation.calls]
    calls = []
    if SEARCH in conversation.tools:
        calls = [ToolCall(SEARCH, {"query": query, "limit": _MOST_HITS}) for query in _queries(topic) if (SEARCH, query) not in done]
    if not calls and READ in conversation.tools:
        pages = [page for page in _pages(conversation, topic) if (READ, page) not in done]
        calls = [ToolCall(READ, {"source": source, "offset": offset}) for source, offset in pages]
    return calls if conversation.parallel else calls[:1]


def research(conversation: Conversation) -> Researched:
    """The best sentences of everything that was read."""
    topic = _topic(conversation)
    dropped = _refused_quotes(conversation)
    sentences = [sentence for sentence in _sentences(conversation) if not any(quote in sentence.quote for quote in dropped)]
    findings, gaps = find(topic, sentences)
    counts = [searched for _, searched in _searches(conversation) if searched is not None]
    return Researched(topic, tuple(findings), tuple(gaps), max(counts, default=conversation.documents))


def envelope(done: Researched) -> dict[str, Any]:
    """The answer envelope, with `output` as Markdown."""
    claims = [
        {"id": f"c{number}", "text": each.sentence.text, "sources": [{"source": each.sentence.source, "quote": each.sentence.quote}]}
        for number, each in enumerate(done.findings, 1)
    ]
    wanted = len(done.topic.aspects) or 1
    coverage = 1 - len(done.gaps) / wanted if claims else 0.0
    nothing = not claims and not done.searched
    return {
        "status": "ok" if claims else "needs_input" if nothing else "partial",
        "output": _markdown(done),
        "claims": claims,
        "confidence": round(0.3 + 0.6 * max(0.0, coverage), 2) if claims else 0.0,
        "needs": None if claims else f"documents about {done.topic.name.rstrip('?.')}",
        "problem": None,
    }


def _topic(conversation: Conversation) -> Topic:
    topic = topic_of(conversation.task)
    asked_again = [each for text in conversation.feedback for each in topic_of(text).aspects]
    known = {each.key for each in topic.aspects}
    return Topic(topic.thing, (*topic.aspects, *(each for each in asked_again if each.key not in known)), topic.question)


def _queries(topic: Topic) -> list[str]:
    if topic.thing is None:
        return [topic.question]
    labels = [each.label for each in (*topic.aspects, FIT)] if topic.aspects else ["overview", "features", "limits", FIT.label]
    return [f"{topic.thing} {label}" for label in labels][: _MOST_SEARCHES - 1] + ([topic.thing] if topic.aspects else [])


def _searches(conversation: Conversation) -> list[tuple[list[dict[str, Any]], int | None]]:
    return [hits_in(call.result) for call in conversation.calls if call.name == SEARCH and call.result and not call.is_error]


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
    for source in weight:
        weight[source] *= 4 if any(mentions(name, source) for name in topic.names) else 1
    best = sorted(weight, key=lambda source: (-weight[source], source))[:_MOST_READS]
    return [(source, 0 if starts[source] < _PAGE_CHARS - 1_000 else max(0, starts[source] - 1_000)) for source in best]


def _sentences(conversation: Conversation) -> list[Sentence]:
    """Whole sentences of the pages read, then of the hits in documents that were not."""
    found: list[Sentence] = []
    read = set()
    for call in conversation.calls:
        page = page_in(call.result) if call.name == READ and call.result and not call.is_error else None
        if page:
            source, offset, total, text = page
            read.add(source)
            found += sentences_of(text, source, starts_whole=offset == 0, ends_whole=offset + len(text) >= total)
    for hit in _hits(conversation):
        if hit["source"] not in read:
            snippet = hit["snippet"].strip(" …")
            found += [each for each in sentences_of(snippet, hit["source"], ends_whole=False) if not each.text[:1].islower()]
    return list({(each.source, each.quote): each for each in reversed(found)}.values())[::-1]


def _refused_quotes(conversation: Conversation) -> list[str]:
    """Quotes of the last answer that the loop did not accept, by the claims that it named."""
    answer = json_in(conversation.last_answer or "")
    if not isinstance(answer, dict) or not conversation.prompts:
        return []
    named = set(re.findall(r"\bc\d+\b", conversation.prompts[-1]))
    return [source["quote"] for claim in answer.get("claims") or () if claim["id"] in named for source in claim["sources"]]


def _markdown(done: Researched) -> str:
    parts, numbered = [], list(enumerate(done.findings, 1))
    for heading in dict.fromkeys(each.heading for each in done.findings):
        lines = [f"- {marked(each.sentence.text, f'c{number}')}" for number, each in numbered if each.heading == heading]
        parts.append("\n".join([f"### {heading}", "", *lines]))
    gaps = [f"{gap} ({done.topic.thing})" if done.topic.thing else gap for gap in done.gaps]
    if not done.findings:
        gaps = [done.topic.name.rstrip("?.")]
    return "\n\n".join([*parts, *([not_found(gaps)] if gaps else [])])
