"""Choosing what to state: of all sentences read, the few that answer a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.agent.offline.aspects import all_aspects
from shared.agent.offline.sentences import Sentence, words_of
from shared.agent.offline.topic import FIT, Topic, aspect_score, form_score, mentions, similar, subject_score

_PER_ASPECT = 2
_MOST_FINDINGS = 10
_SAME = 0.75
"""Share of words in common from which two sentences say the same."""
_SECOND_BEST = 0.5
"""A further sentence must reach this share of the best one's score."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence to state, under the heading that it answers."""

    heading: str
    sentence: Sentence


def find(topic: Topic, sentences: Sequence[Sentence]) -> tuple[list[Finding], list[str]]:
    """Findings in the order in which to state them, and the labels of aspects that nothing was found for."""
    if topic.thing:
        return _about_thing(topic, topic.thing, sentences)
    return _about_question(topic, sentences), []


def heading_of(label: str) -> str:
    return label[:1].upper() + label[1:]


def _about_thing(topic: Topic, thing: str, sentences: Sequence[Sentence]) -> tuple[list[Finding], list[str]]:
    found: list[Finding] = []
    gaps: list[str] = []
    about = [sentence for sentence in sentences if subject_score(thing, sentence) > 0]
    definition = max(about, key=lambda each: _definition_score(thing, each), default=None)
    if definition and _definition_score(thing, definition) > 0:
        found.append(Finding(thing, definition))
    per_aspect = _PER_ASPECT if topic.aspects else 1
    for wanted in (*(topic.aspects or all_aspects()), FIT):
        scored = [
            (said + subject_score(thing, each) + form_score(each), each)
            for each in about
            if (said := aspect_score(wanted, each)) and _stands_for(thing, each, wanted.key)
        ]
        chosen = _best(scored, per_aspect if wanted.key != FIT.key else 1, found)
        found += [Finding(heading_of(wanted.label), each) for each in chosen]
        if not chosen and not scored and wanted.key != FIT.key and topic.aspects:
            gaps.append(wanted.label)
    return found[:_MOST_FINDINGS], gaps


def _stands_for(thing: str, sentence: Sentence, key: str) -> bool:
    """Advice must name the thing itself; anything else may stand in a document about it."""
    return key != FIT.key or mentions(thing, sentence.text)


def _definition_score(thing: str, sentence: Sentence) -> float:
    text = sentence.text.lower()
    is_one = any(
        text.startswith(f"{thing.lower()}{gap} {verb} {article} ")
        for gap in ("",)
        for verb in ("is", "was")
        for article in ("a", "an", "the")
    )
    return (2.0 if is_one else 0.0) + (0.5 if is_one and mentions(thing, sentence.title) else 0.0) - sentence.order * 0.01 * is_one


def _about_question(topic: Topic, sentences: Sequence[Sentence]) -> list[Finding]:
    rarity = _rarities(topic, sentences)
    scored = []
    for each in sentences:
        if topic.names and not any(subject_score(name, each) for name in topic.names):
            continue
        said = sum(rarity[s] for s in topic.stems if _has(s, words_of(each.text)))
        near = sum(rarity[s] for s in topic.stems if _has(s, words_of(f"{each.title} {each.heading}")))
        aspects = sum(aspect_score(wanted, each) for wanted in topic.aspects)
        named = sum(subject_score(name, each) for name in topic.names) / max(1, len(topic.names))
        if said or aspects:
            first = 0.5 if each.order == 0 else 0.0
            scored.append((said + 0.5 * near + 0.5 * aspects + 0.5 * named + first + form_score(each), each))
    chosen = _best(scored, _MOST_FINDINGS // 2 + 1, [])
    place = {source: index for index, source in enumerate(dict.fromkeys(each.source for each in chosen))}
    return [Finding(each.title, each) for each in sorted(chosen, key=lambda each: (place[each.source], each.order))]


def _rarities(topic: Topic, sentences: Sequence[Sentence]) -> dict[str, float]:
    """A word that few sentences have says more than one that all have: 0.5 to 2.0."""
    total = len(sentences) or 1
    bags = [words_of(each.text) for each in sentences]
    return {s: 2.0 - 1.5 * sum(_has(s, bag) for bag in bags) / total for s in topic.stems}


def _has(wanted: str, words: Sequence[str]) -> bool:
    return any(word.startswith(wanted) for word in words)


def _best(scored: list[tuple[float, Sentence]], most: int, already: Sequence[Finding]) -> list[Sentence]:
    """The best that say something new; ties go to the earlier sentence."""
    chosen: list[Sentence] = []
    ranked = sorted(scored, key=lambda pair: (-pair[0], pair[1].source, pair[1].order))
    for score, sentence in ranked:
        if len(chosen) >= most or (chosen and score < ranked[0][0] * _SECOND_BEST):
            break
        others = [*chosen, *(each.sentence for each in already)]
        if all(similar(sentence.text, other.text) < _SAME for other in others):
            chosen.append(sentence)
    return chosen
