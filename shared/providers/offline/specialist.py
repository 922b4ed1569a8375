"""The turns of a specialist: search documents, read them, and state the matching sentences. Or
write from the claims of earlier results.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from handoff_queue.shared.providers.offline.citations import (
    ALL_DOCUMENTS,
    MissingFact,
    find_markers,
    find_open_gaps,
    join_places,
    parse_gaps,
    without_found_words,
)
from handoff_queue.shared.providers.offline.conversation import (
    OfflineClaim,
    RequestParts,
    iterate_objects,
    parse_documents,
)
from handoff_queue.shared.providers.offline.drafts import draft, group_claims_by_subject
from handoff_queue.shared.providers.offline.json_schema_filling import fill, is_valid
from handoff_queue.shared.providers.offline.request_text import (
    explain_unanswerable,
    extract_request,
    understand,
)
from handoff_queue.shared.providers.offline.selection import Topic, find_claims, find_topics
from handoff_queue.shared.providers.offline.sentences import Sentence, build_name, parse_sentences
from handoff_queue.shared.providers.offline.words import (
    find_content_words,
    join_with_and,
    mentions,
)

SEARCH, READ = "search_documents", "read_document"
_MAX_CALLS = 12
"""Tool calls in one turn."""
_MAX_READ = 3
"""Documents to read for one topic."""
_MAX_HITS = 8
_MAX_QUERY_WORDS = 20
_PAGE_CHARS = 11_000
"""Hits at or before about this offset need no other page. One call of `read_document` returns
a little more.
"""
_BEFORE_HIT_CHARS = 1_000
"""Characters to read before a hit."""
_FROM_RESULTS = "the results"
"""Place of a gap that a writer finds."""
_RESEARCH = re.compile(r"(?:research|find|look up|search|investigate)\b", re.IGNORECASE)


class _PageRead(NamedTuple):
    """A part of a document that the specialist has read."""

    source: str
    offset: int
    """Characters of the document before this part."""
    total_chars: int
    """Characters of the document."""
    text: str

    @property
    def end(self) -> int:
        """Characters of the document up to the end of this part."""
        return self.offset + len(self.text)


class _Research(NamedTuple):
    """What the documents say about the topics of a task."""

    claims: list[OfflineClaim]
    gaps: list[MissingFact]
    topics_without_claims: list[Topic]


def next_calls(conversation: RequestParts) -> list[dict[str, Any]]:
    """Return the tool calls of this turn: all new searches, or else all new documents to read.
    The list is empty if the answer is due.
    """
    if _is_writing(conversation) or _explain_unanswerable(conversation):
        return []
    searches: list[dict[str, Any]] = []
    pages: list[dict[str, Any]] = []
    for topic in find_topics(conversation.task):
        for query in _build_queries(topic):
            searches.append({"query": query, "limit": _MAX_HITS})
        pages += _build_page_arguments(conversation, topic)
    for name, inputs in ((SEARCH, searches), (READ, pages)):
        calls = _build_new_calls(conversation, name, inputs[:_MAX_CALLS])
        if calls and name in conversation.tools:
            return calls
    return []


def _build_new_calls(
    conversation: RequestParts, name: str, inputs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the calls of a tool that no earlier turn has made, each once."""
    earlier_inputs: list[Mapping[str, Any]] = []
    for earlier in conversation.calls:
        if earlier.name == name:
            earlier_inputs.append(earlier.input)
    calls: list[dict[str, Any]] = []
    for arguments in inputs:
        call = {"type": "tool_use", "id": "", "name": name, "input": arguments}
        if arguments not in earlier_inputs and call not in calls:
            calls.append(call)
    return calls


def build_answer(conversation: RequestParts) -> dict[str, Any]:
    """Return the answer envelope. If the output must match a schema, it is filled from the
    claims.
    """
    if _is_writing(conversation):
        claims = conversation.claims
        envelope = _build_envelope_from_context(conversation, claims)
    elif reason := _explain_unanswerable(conversation):
        return _build_envelope("partial", reason, problem=reason)
    else:
        research = _find_claims(conversation)
        claims = research.claims
        envelope = _build_envelope_from_documents(conversation, research)
    form = conversation.output_format
    if form and not is_valid(envelope["output"], form):
        subjects = understand(extract_request(conversation.task)).subjects
        form_answer = fill(form, claims, group_claims_by_subject(subjects, claims))
        used_claims = [claim for claim in claims if claim.id in form_answer.used_ids]
        envelope |= {"output": form_answer.value, "claims": _convert_claims(used_claims)}
        if form_answer.missing and envelope["status"] != "needs_input":
            envelope["status"] = "partial"
            if form_answer.value is None:
                envelope["status"] = "failed"
            envelope["problem"] = f"no value was found for {join_with_and(form_answer.missing)}"
    return envelope


def _find_claims(conversation: RequestParts) -> _Research:
    """Return the claims that the documents support, with the gaps."""
    sentences = _collect_sentences(conversation)
    place = _describe_pages_read(conversation)
    lines: list[str] = []
    for page in _iterate_pages_in_scope(conversation):
        lines += page.text.splitlines()
    claims_by_text: dict[str, OfflineClaim] = {}
    gaps: list[MissingFact] = []
    topics_without_claims: list[Topic] = []
    for topic in find_topics(conversation.task):
        claims, topic_gaps = find_claims(topic, sentences)
        for topic_gap in topic_gaps:
            # A line without a sentence, such as a line of code, may have the word.
            if text := without_found_words(topic_gap, lines):
                gaps.append(MissingFact(text, place))
        if not claims:
            topics_without_claims.append(topic)
        for claim in claims:
            claim_id = f"c{len(claims_by_text) + 1}"
            claims_by_text.setdefault(claim.text, replace(claim, id=claim_id))
    return _Research(list(claims_by_text.values()), gaps, topics_without_claims)


def _build_envelope_from_documents(
    conversation: RequestParts, research: _Research
) -> dict[str, Any]:
    """Return the envelope of an answer from documents. Without any document, its status is
    `needs_input`.
    """
    claims, gaps, missing = research
    output = draft(extract_request(conversation.task), claims, gaps)
    if claims:
        return _build_envelope("ok", output, claims, confidence=0.6 if gaps else 0.9)
    missing_topics = join_with_and([topic.gap for topic in missing])
    problem = f"not found in {_describe_pages_read(conversation)}: {missing_topics}"
    if conversation.paths or _has_searched(conversation):
        return _build_envelope("partial", output, problem=problem)
    return _build_envelope("needs_input", output, needs=_describe_needs(missing), problem=problem)


def _describe_needs(missing: Iterable[Topic]) -> str:
    """Return the documents that the answer needs, for topics in words and for questions."""
    subjects: list[str] = []
    questions: list[str] = []
    for topic in missing:
        if topic.text.endswith("?"):
            questions.append(f'"{topic.text}"')
        else:
            subjects.append(topic.text.rstrip("."))
    needs: list[str] = []
    if subjects:
        needs.append(f"documents about {join_with_and(subjects)}")
    if questions:
        needs.append(f"documents that answer {join_with_and(questions)}")
    return join_with_and(needs)


def _has_searched(conversation: RequestParts) -> bool:
    """Return whether a search has covered at least one document."""
    return any(
        re.search(r'"searched":\s*[1-9]|"chars":', call.result) for call in conversation.calls
    )


def _build_envelope_from_context(
    conversation: RequestParts, claims: list[OfflineClaim]
) -> dict[str, Any]:
    """Return the envelope of a text whose markers point to claims of the context."""
    request = extract_request(conversation.task)
    gaps = find_open_gaps(conversation.results)
    for result in conversation.results:
        states_nothing = not result.claims and not find_markers(result.text)
        if states_nothing and not parse_gaps(result.text):
            gaps.append(
                MissingFact(f"anything from {result.step} ({result.status})", _FROM_RESULTS)
            )
    missing: list[str] = []
    unnamed_subjects: list[MissingFact] = []
    for subject, about in group_claims_by_subject(understand(request).subjects, claims).items():
        if not about:
            missing.append(subject)
            if not any(subject in gap.text for gap in gaps):
                unnamed_subjects.append(MissingFact(subject, _FROM_RESULTS))
    gaps += unnamed_subjects
    output = draft(request, claims, list(dict.fromkeys(gaps)))
    if not claims:
        steps = join_with_and([result.step for result in conversation.results])
        return _build_envelope("partial", output, problem=f"no claims came from {steps}")
    if missing:
        problem = f"the results say nothing about {join_with_and(missing)}"
        return _build_envelope("partial", output, confidence=0.5, problem=problem)
    return _build_envelope("ok", output, confidence=0.6 if gaps else 0.9)


def _build_envelope(
    status: str, output: str, claims: Sequence[OfflineClaim] = (), **more: Any
) -> dict[str, Any]:
    envelope = {"status": status, "output": output, "claims": _convert_claims(claims)}
    return {**envelope, "confidence": 0.0, "needs": None, "problem": None, **more}


def _convert_claims(claims: Sequence[OfflineClaim]) -> list[dict[str, Any]]:
    """Return claims in the form of the answer envelope."""
    claims_json: list[dict[str, Any]] = []
    for claim in claims:
        sources: list[dict[str, str]] = []
        for quote in claim.quotes:
            sources.append({"source": claim.source, "quote": quote})
        claims_json.append({"id": claim.id, "text": claim.text, "sources": sources})
    return claims_json


def _is_writing(conversation: RequestParts) -> bool:
    """Return whether the task is to write from results, and not to search for more."""
    if not conversation.results:
        return False
    has_search = SEARCH in conversation.tools
    for call in conversation.calls:
        has_search = has_search or call.name == SEARCH
    return not has_search or _RESEARCH.match(conversation.task) is None


def _explain_unanswerable(conversation: RequestParts) -> str | None:
    """Return the reason why quotes cannot answer the task, or None if they may."""
    texts = [extract_request(conversation.task)]
    for topic in find_topics(conversation.task):
        if not topic.is_subject:
            texts.append(topic.text)
    for text in texts:
        if reason := explain_unanswerable(text):
            return reason
    return None


def _build_queries(topic: Topic) -> list[str]:
    """Return the queries of the searches for a topic."""
    if not topic.is_subject:
        return [" ".join(find_content_words(topic.text)[:_MAX_QUERY_WORDS]) or topic.text[:200]]
    queries = [topic.text]
    for aspect in topic.aspects:
        queries.append(f"{topic.text} {aspect}")
    return queries


def _build_page_arguments(conversation: RequestParts, topic: Topic) -> list[dict[str, Any]]:
    """Return the arguments of `read_document` for a topic: the documents that the task names,
    then the documents with the best hits. They are at most `_MAX_READ` if the topic has
    words.
    """
    has_words = bool(find_content_words(topic.text))
    weights: dict[str, float] = defaultdict(float)
    starts: dict[str, int] = {}
    for rank, hit in enumerate(_iterate_hits(conversation)):
        source, start = hit["source"], hit.get("offset", 0)
        weights[source] += 1 / (1 + rank)
        starts[source] = min(starts.get(source, start), start)
    for path in conversation.paths:
        if not has_words or mentions(build_name(path), topic.text):
            weights[path] += 0.0
    best = sorted(weights, key=lambda source: (-weights[source], source))
    sources = [*_find_paths_in_task(conversation), *best]
    if has_words:
        sources = sources[:_MAX_READ]
    pages = []
    for source in sources:
        start = starts.get(source, 0)
        offset = 0
        if start > _PAGE_CHARS - _BEFORE_HIT_CHARS:
            offset = start - _BEFORE_HIT_CHARS
        pages.append({"source": source, "offset": offset})
    return pages


def _find_paths_in_task(conversation: RequestParts) -> list[str]:
    paths: list[str] = []
    for path in conversation.paths:
        if path in conversation.task:
            paths.append(path)
    return paths


def _collect_sentences(conversation: RequestParts) -> list[Sentence]:
    """Return the sentences of the pages that were read.

    If the task names documents, only the sentences of these documents are returned.
    """
    distinct: dict[tuple[str, str], Sentence] = {}
    for page in _iterate_pages_in_scope(conversation):
        is_start, is_end = page.offset == 0, page.end >= page.total_chars
        for sentence in parse_sentences(page.text, page.source, is_start=is_start, is_end=is_end):
            distinct.setdefault((sentence.source, sentence.quote), sentence)
    return list(distinct.values())


def _describe_pages_read(conversation: RequestParts) -> str:
    """Return the names of the documents that were read, or `the documents` if a search has no
    hit.
    """
    ends: dict[str, dict[int, int]] = {}
    totals: dict[str, int] = {}
    for page in _iterate_pages_in_scope(conversation):
        ends.setdefault(page.source, {})[page.offset] = page.end
        totals[page.source] = page.total_chars
    names: list[str] = []
    for source, end_by_start in ends.items():
        position = 0
        for start, end in sorted(end_by_start.items()):
            if start <= position:
                position = max(position, end)
        names.append(source if position >= totals[source] else f"a part of {source}")
    return join_places(names) or ALL_DOCUMENTS


def _iterate_pages_in_scope(conversation: RequestParts) -> Iterator[_PageRead]:
    """Yield the pages that were read. If the task names documents, only their pages count."""
    named_paths = _find_paths_in_task(conversation)
    for page in _iterate_pages_read(conversation):
        if not named_paths or page.source in named_paths:
            yield page


def _iterate_pages_read(conversation: RequestParts) -> Iterator[_PageRead]:
    """Yield the pages that the handoff, its searches and its reads have shown. A short document
    is one page.
    """
    for source, text in conversation.documents:
        yield _PageRead(source, 0, len(text), text)
    for call in conversation.calls:
        if call.name == SEARCH:
            documents, _ = parse_documents(call.result)
            for source, text in documents:
                yield _PageRead(source, 0, len(text), text)
        if call.name == READ and call.result.startswith("{"):
            header, _, text = call.result.partition("\n")
            page = json.loads(header)
            yield _PageRead(page["source"], page["offset"], page["total_chars"], text)


def _iterate_hits(conversation: RequestParts) -> Iterator[dict[str, Any]]:
    for call in conversation.calls:
        if call.name == SEARCH:
            for hit in iterate_objects(call.result, "source"):
                if "snippet" in hit:
                    yield hit
