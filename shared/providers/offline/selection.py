"""Selects the sentences of documents that answer a topic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from handoff_queue.shared.providers.offline.citations import describe_gap
from handoff_queue.shared.providers.offline.conversation import OfflineClaim
from handoff_queue.shared.providers.offline.drafts import remove_repeats
from handoff_queue.shared.providers.offline.request_text import (
    extract_request,
    split_items,
    understand,
)
from handoff_queue.shared.providers.offline.sentences import Sentence
from handoff_queue.shared.providers.offline.words import (
    find_content_stems,
    find_content_words,
    find_stems,
    mentions,
    mentions_any,
)

_MAX_NAME_WORDS = 6
_MAX_CLAIMS, _MAX_ANSWERS, _PER_ASPECT, _ENOUGH_ABOUT_A_THING = 10, 6, 2, 6
_PLACE_WEIGHT = 0.3
"""Factor for a word in the headings or the document's name. A word in the sentence has 1.0."""
_MIN_SHARE = 0.2
"""Least share of the words of a question, by weight, that a sentence must have."""
_SECOND_BEST = 0.4
"""Least share of the best score that a further sentence must have."""
_RESEARCH = re.compile(
    r"(?:Research|Find out|Look up|Investigate)\s+(?:the (?P<kind>question|subject):\s*)?"
)
_LIST = re.compile(r"(?:which|list|name|who|what are)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Topic:
    """A subject to describe, or a question to answer."""

    text: str
    is_subject: bool = False
    aspects: tuple[str, ...] = ()
    """Aspects of the subject to describe. Empty: all sentences about the subject."""

    @property
    def gap(self) -> str:
        """The topic as an item in a list of gaps."""
        if self.text.endswith("?"):
            return f'an answer to "{self.text}"'
        return self.text.rstrip(".")

    @property
    def names(self) -> tuple[str, ...]:
        """Proper names in the topic. A sentence or its headings must have one of the names."""
        if self.is_subject:
            return (self.text,)
        words = re.findall(r"[^\W\d_][\w.+#-]*\w", self.text)
        names: dict[str, None] = {}
        for index, word in enumerate(words):
            # The first word of a sentence is always capitalized.
            is_name = word != word.lower()
            if index == 0:
                is_name = re.search(r"\w[A-Z]", word) is not None
            if is_name:
                names[word] = None
        return tuple(names)


def find_topics(task: str) -> tuple[Topic, ...]:
    """Return the topics of a task. A comparison has one topic for each subject."""
    request = extract_request(task)
    first = request.partition("\n")[0].strip()
    if research := _RESEARCH.match(first):
        subject = first[research.end() :]
        name, _, aspects = subject.rstrip(".").partition(" with regard to ")
        if research["kind"] or len(name.split()) > _MAX_NAME_WORDS:
            return (Topic(subject),)
        return (Topic(name, is_subject=True, aspects=tuple(split_items(aspects))),)
    asking = understand(request)
    topics: list[Topic] = []
    for subject in asking.subjects:
        topics.append(Topic(subject, is_subject=True, aspects=asking.aspects))
    for question in asking.topics:
        topics.append(Topic(question))
    return tuple(topics)


def find_claims(
    topic: Topic, sentences: Sequence[Sentence]
) -> tuple[list[OfflineClaim], list[str]]:
    """Return claims without ids about a topic, and its gaps: phrases for missing facts."""
    if topic.is_subject:
        claims, gaps = _select_for_subject(topic, sentences)
    else:
        claims, gaps = _select_for_question(topic, sentences)
    if claims:
        return remove_repeats(claims)[:_MAX_CLAIMS], gaps
    return [], [topic.gap]


def _select_for_subject(
    topic: Topic, sentences: Sequence[Sentence]
) -> tuple[list[OfflineClaim], list[str]]:
    """Return claims for each aspect of a subject. If an aspect has none, or there are no
    aspects, return claims from all sections about the subject, too.
    """
    about: list[Sentence] = []
    sentences_in_titles: list[Sentence] = []
    for sentence in sentences:
        if mentions(topic.text, _add_place_to_text(sentence)):
            about.append(sentence)
            if mentions(topic.text, sentence.place):
                sentences_in_titles.append(sentence)
    claims: list[OfflineClaim] = []
    gaps: list[str] = []
    for aspect in topic.aspects:
        matching = _select_matching(
            find_content_stems(aspect) or find_stems(aspect), about, _PER_ASPECT
        )
        heading = f"{aspect[:1].upper()}{aspect[1:]}"
        for sentence in matching:
            claims.append(_build_subject_claim(topic.text, heading, sentence))
        if not matching:
            gaps.append(describe_gap([aspect], topic.text))
    if claims and not gaps:
        if sentences_in_titles:
            claims.insert(0, _build_subject_claim(topic.text, topic.text, sentences_in_titles[0]))
        return claims, gaps
    sections = _select_first_of_sections(sentences_in_titles)
    rest = [sentence for sentence in about if sentence not in sections]
    limit = max(_ENOUGH_ABOUT_A_THING, len(claims) + len(sections))
    for sentence in [*sections, *rest]:
        heading = topic.text
        if len(sentence.headings) > 1 and not mentions(topic.text, sentence.headings[-1]):
            heading = sentence.headings[-1]
        claims.append(_build_subject_claim(topic.text, heading, sentence))
    return claims[:limit], gaps


def _select_for_question(
    topic: Topic, sentences: Sequence[Sentence]
) -> tuple[list[OfflineClaim], list[str]]:
    """Return claims that match the words of a question, and a gap for words in no sentence.

    For a subject that is not a question, return an overview of the sections with its words in
    their headings if no sentence matches.
    """
    question_stems = find_content_stems(topic.text)
    seen: set[str] = set()
    for sentence in sentences:
        seen |= _find_stems_with_place(sentence)
    matching: list[Sentence] = []
    if question_stems:
        limit = _MAX_CLAIMS if _LIST.match(topic.text) else _MAX_ANSWERS
        matching = _select_matching(question_stems, _find_candidates(topic, sentences, seen), limit)
    if not matching and not topic.text.endswith("?"):
        return _select_overview_claims(question_stems, sentences), []
    unseen_words: list[str] = []
    for word in find_content_words(topic.text):
        if len(word) > 1 and not find_stems(word) & seen:
            unseen_words.append(word)
    gaps = [describe_gap(unseen_words)] if unseen_words else []
    claims: list[OfflineClaim] = []
    for sentence in sorted(matching, key=list(sentences).index):
        claims.append(_build_claim_in_context(topic.text, sentence))
    return claims, gaps


def _find_candidates(
    topic: Topic, sentences: Sequence[Sentence], seen: Set[str]
) -> Sequence[Sentence]:
    """Return the sentences that have a name of the topic. If the topic has no names, return
    all sentences, or none if most words of the topic are not in `seen`.
    """
    if topic.names:
        candidates: list[Sentence] = []
        for sentence in sentences:
            if mentions_any(topic.names, _add_place_to_text(sentence)):
                candidates.append(sentence)
        return candidates
    topic_stems = find_content_stems(topic.text)
    if 2 * len(topic_stems - seen) > len(topic_stems) or not topic_stems & seen:
        return []
    return sentences


def _select_overview_claims(
    question_stems: Set[str], sentences: Sequence[Sentence]
) -> list[OfflineClaim]:
    """Return claims of an overview of the sections with all of these words in their headings."""
    titled_sentences = [
        sentence for sentence in sentences if question_stems <= find_stems(sentence.place)
    ]
    claims: list[OfflineClaim] = []
    for sentence in _select_overview(titled_sentences):
        claims.append(_build_claim_in_context("", sentence))
    return claims


def _select_matching(
    stems: frozenset[str], sentences: Sequence[Sentence], limit: int
) -> list[Sentence]:
    """Return at most `limit` sentences that have most of the words, the best first. Of
    equal scores, the earlier sentence comes first.

    A word in few sentences weighs more than a common word.
    """
    weights: dict[str, float] = {}
    for stem in sorted(stems):
        count = sum(stem in find_stems(sentence.text) for sentence in sentences)
        weights[stem] = math.log(1 + len(sentences) / (1 + count)) ** 2
    scored_sentences = []
    for sentence in sentences:
        in_text = find_stems(sentence.text)
        in_place = find_stems(sentence.place) - in_text
        score = _sum_weights(in_text, weights) + _PLACE_WEIGHT * _sum_weights(in_place, weights)
        scored_sentences.append((score, sentence))
    scored_sentences.sort(key=lambda pair: -pair[0])
    matches: list[Sentence] = []
    for score, sentence in scored_sentences:
        is_enough = score >= scored_sentences[0][0] * _SECOND_BEST
        if not is_enough or score < sum(weights.values()) * _MIN_SHARE or len(matches) >= limit:
            break
        matches.append(sentence)
    return matches


def _sum_weights(stems: Set[str], weights: Mapping[str, float]) -> float:
    """Return the sum of the weights of these stems."""
    return sum(weight for stem, weight in weights.items() if stem in stems)


def _select_overview(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Return the first sentence of each section, or of each document if there are more than
    `_MAX_CLAIMS` sections.
    """
    firsts = _select_first_of_sections(sentences)
    if len(firsts) <= _MAX_CLAIMS:
        return firsts
    by_source: dict[str, Sentence] = {}
    for sentence in reversed(firsts):
        by_source[sentence.source] = sentence
    return list(reversed(by_source.values()))


def _select_first_of_sections(sentences: Iterable[Sentence]) -> list[Sentence]:
    firsts: dict[tuple[str, ...], Sentence] = {}
    for sentence in sentences:
        firsts.setdefault((sentence.source, *sentence.headings), sentence)
    return list(firsts.values())


def _add_place_to_text(sentence: Sentence) -> str:
    return f"{sentence.text} {sentence.place}"


def _find_stems_with_place(sentence: Sentence) -> frozenset[str]:
    return find_stems(sentence.text) | find_stems(sentence.place)


def _build_subject_claim(subject: str, heading: str, sentence: Sentence) -> OfflineClaim:
    """Return the claim of a sentence. The subject precedes a sentence that does not name it."""
    text = sentence.text
    if not mentions(subject, text):
        text = f"{subject}: {text}"
    return OfflineClaim("", text, sentence.source, (sentence.quote,), heading)


def _build_claim_in_context(heading: str, sentence: Sentence) -> OfflineClaim:
    """Return the claim of a sentence, with its headings in front if they share no word with
    the sentence.
    """
    above = ", ".join(sentence.headings)
    text = sentence.text
    if above and not find_content_stems(above) & find_stems(text):
        text = f"{above}: {text}"
    return OfflineClaim("", text, sentence.source, (sentence.quote,), heading)
