"""Which sentences of the documents answer a topic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Claim
from handoff_queue.shared.providers.offline.request_text import items_of, request_in, understand
from handoff_queue.shared.providers.offline.sentences import Sentence
from handoff_queue.shared.providers.offline.words import (
    content_stems,
    content_words,
    mentions,
    similarity,
    stems_of,
)

_MOST_NAME_WORDS = 6
_MOST_CLAIMS, _MOST_ANSWERS, _PER_ASPECT, _ENOUGH_ABOUT_A_THING = 10, 6, 2, 6
_PLACE_WEIGHT = 0.3
"""Weight of a word in the headings, against 1.0 in the sentence."""
_FEWEST_SHARE = 0.2
"""Share of the words of a question, by weight, that a sentence needs."""
_SECOND_BEST = 0.4
"""Share of the best score that a further sentence needs."""
_SAME = 0.75
"""Similarity from which two sentences say the same."""
_RESEARCH = re.compile(
    r"(?:Research|Find out|Look up|Investigate)\s+(?:the (?P<kind>question|subject):\s*)?"
)
_LIST = re.compile(r"(?:which|list|name|who|what are)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Topic:
    """A thing to describe, or a question to answer."""

    text: str
    is_thing: bool = False
    aspects: tuple[str, ...] = ()
    """What to say about the thing. Empty: everything."""

    @property
    def gap(self) -> str:
        """Name of the topic in a list of gaps."""
        is_question = self.text.endswith("?")
        if is_question:
            return f'an answer to "{self.text}"'
        return self.text.rstrip(".")

    @property
    def names(self) -> tuple[str, ...]:
        """Proper names in the topic. A sentence or its headings must have one of the names."""
        if self.is_thing:
            return (self.text,)
        words = re.findall(r"[^\W\d_][\w.+#-]*\w", self.text)
        first: list[Any] = []
        for word in words[:1]:
            if re.search(r"\w[A-Z]", word):
                first.append(word)
        return tuple(dict.fromkeys([*first, *(w for w in words[1:] if w != w.lower())]))


def topics_of(task: str) -> tuple[Topic, ...]:
    """Return the topics of a task. A comparison has one topic for each thing."""
    words = request_in(task)
    first = words.partition("\n")[0].strip()
    if research := _RESEARCH.match(first):
        subject = first[research.end() :]
        name, _, aspects = subject.rstrip(".").partition(" with regard to ")
        if research["kind"] or len(name.split()) > _MOST_NAME_WORDS:
            return (Topic(subject),)
        return (Topic(name, is_thing=True, aspects=tuple(items_of(aspects))),)
    asking = understand(words)
    if asking.things:
        items: list[Topic] = []
        for thing in asking.things:
            items.append(Topic(thing, is_thing=True, aspects=asking.aspects))
        return tuple(items)
    topics: list[Topic] = []
    for each in asking.topics:
        topics.append(Topic(each))
    return tuple(topics)


def find(topic: Topic, sentences: Sequence[Sentence]) -> tuple[list[Claim], list[str]]:
    """Return claims without ids, and the gaps: phrases for missing facts about the topic."""
    claims, gaps = (_about_thing if topic.is_thing else _about_question)(topic, sentences)
    if claims:
        return (_distinct(claims)[:_MOST_CLAIMS], gaps)
    return ([], [topic.gap])


def _about_thing(topic: Topic, sentences: Sequence[Sentence]) -> tuple[list[Claim], list[str]]:
    about = [each for each in sentences if mentions(topic.text, f"{each.text} {each.place}")]
    own = [each for each in about if mentions(topic.text, each.place)]
    claims: list[Claim] = []
    gaps = []
    for aspect in topic.aspects:
        chosen = _matching(content_stems(aspect) or stems_of(aspect), about, _PER_ASPECT)
        heading = f"{aspect[:1].upper()}{aspect[1:]}"
        claims += [_of_thing(topic.text, heading, each) for each in chosen]
        if not chosen:
            gaps.append(f'the words "{aspect}" ({topic.text})')
    if claims and not gaps:
        return [_of_thing(topic.text, topic.text, each) for each in own[:1]] + claims, gaps
    sections = _first_of_sections(own)
    rest = [each for each in about if each not in sections]
    most = max(_ENOUGH_ABOUT_A_THING, len(claims) + len(sections))
    for sentence in [*sections, *rest]:
        if len(sentence.headings) > 1:
            heading = sentence.headings[-1]
        else:
            heading = topic.text
        is_named = mentions(topic.text, heading)
        claims.append(_of_thing(topic.text, topic.text if is_named else heading, sentence))
    return claims[:most], gaps


def _about_question(topic: Topic, sentences: Sequence[Sentence]) -> tuple[list[Claim], list[str]]:
    wanted = content_stems(topic.text)
    seen = frozenset[str]().union(*(_stems_with_place(each) for each in sentences))
    candidates = sentences
    if topic.names:
        texts = {each: f"{each.text} {each.place}" for each in sentences}
        candidates = [
            each for each in sentences if any(mentions(n, texts[each]) for n in topic.names)
        ]
    elif 2 * len(wanted - seen) > len(wanted) or (wanted and not wanted & seen):
        candidates = []
    most = _MOST_CLAIMS if _LIST.match(topic.text) else _MOST_ANSWERS
    chosen = _matching(wanted, candidates, most) if wanted else []
    if not chosen and not topic.text.endswith("?"):
        titled = [each for each in sentences if wanted <= stems_of(each.place)]
        return [_in_context("", each) for each in _overview(titled)], []
    chosen.sort(key=list(sentences).index)
    unseen: list[str] = []
    for w in content_words(topic.text):
        if len(w) > 1 and not stems_of(w) & seen:
            unseen.append(w)
    gaps = [f'the words "{", ".join(unseen)}"'] if unseen else []
    return [_in_context(topic.text, each) for each in chosen], gaps


def _matching(wanted: frozenset[str], sentences: Sequence[Sentence], most: int) -> list[Sentence]:
    """Return the sentences that have most of the wanted words. Ties go to the earlier sentence.

    A word in few sentences weighs more than a common word.
    """
    weights = {}
    for stem in sorted(wanted):
        count = sum(stem in stems_of(sentence.text) for sentence in sentences)
        weights[stem] = math.log(1 + len(sentences) / (1 + count)) ** 2
    scored = []
    for sentence in sentences:
        said = stems_of(sentence.text)
        near = _stems_with_place(sentence)
        score = sum(weight for stem, weight in weights.items() if stem in said)
        score += _PLACE_WEIGHT * sum(w for stem, w in weights.items() if stem in near - said)
        scored.append((score, sentence))
    scored.sort(key=lambda pair: -pair[0])
    chosen: list[Sentence] = []
    for score, sentence in scored:
        is_enough = score >= scored[0][0] * _SECOND_BEST
        if not is_enough or score < sum(weights.values()) * _FEWEST_SHARE or len(chosen) >= most:
            break
        if all(similarity(sentence.text, other.text) < _SAME for other in chosen):
            chosen.append(sentence)
    return chosen


def _overview(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Return the first sentence of each section, or of each document if there are many sections."""
    firsts = _first_of_sections(sentences)
    if len(firsts) <= _MOST_CLAIMS:
        return firsts
    return list({each.source: each for each in reversed(firsts)}.values())[::-1]


def _first_of_sections(sentences: Iterable[Sentence]) -> list[Sentence]:
    firsts: dict[tuple[str, ...], Sentence] = {}
    for sentence in sentences:
        firsts.setdefault((sentence.source, *sentence.headings), sentence)
    return list(firsts.values())


def _distinct(claims: Iterable[Claim]) -> list[Claim]:
    kept: list[Claim] = []
    for claim in claims:
        if all(similarity(claim.text, other.text) < _SAME for other in kept):
            kept.append(claim)
    return kept


def _stems_with_place(sentence: Sentence) -> frozenset[str]:
    return stems_of(sentence.text) | stems_of(sentence.place)


def _of_thing(thing: str, heading: str, sentence: Sentence) -> Claim:
    """Return the claim of a sentence, with the thing in front if the sentence does not name it."""
    if mentions(thing, sentence.text):
        text = sentence.text
    else:
        text = f"{thing}: {sentence.text}"
    return Claim("", text, sentence.source, (sentence.quote,), heading)


def _in_context(heading: str, sentence: Sentence) -> Claim:
    """Return the claim of a sentence, after its headings if it has no word of the headings."""
    above = ", ".join(sentence.headings)
    has_context = not above or content_stems(above) & stems_of(sentence.text)
    if has_context:
        text = sentence.text
    else:
        text = f"{above}: {sentence.text}"
    return Claim("", text, sentence.source, (sentence.quote,), heading)
