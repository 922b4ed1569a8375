"""Choosing what to state: of all sentences read, the few that answer a topic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from handoff_queue.shared.providers.offline.aspects import all_aspects
from handoff_queue.shared.providers.offline.sentences import Sentence, title_of
from handoff_queue.shared.providers.offline.stems import has_stem, stems_of
from handoff_queue.shared.providers.offline.topic import (
    FIT,
    Topic,
    aspect_score,
    defines,
    form_score,
    is_subject,
    mentions,
    similar,
    subject_score,
)

_PER_ASPECT = 2
_PER_QUESTION = 6
_ENOUGH = 5
"""Findings about a thing that no aspects were asked for."""
_MOST_FINDINGS = 10
_SECOND_BEST_ANSWER = 0.4
_FEWEST_ASPECT_POINTS = 2.0
"""One word that merely hints at an aspect is not enough."""
_FEWEST_SHARE = 0.2
"""Of a question's words, by their rarity, that a sentence and its headings must have."""
_NEAR_WEIGHT = 0.25
"""What a word in the headings counts, against one in the sentence."""
_SAME = 0.75
"""Share of words in common from which two sentences say the same."""
_LEANS_HEAVILY = 4.0
"""What `form_score` takes off for a beginning like "However, this ..."."""
_SECOND_BEST = 0.5
"""A further sentence must reach this share of the best one's score."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence to state, under the heading that it answers."""

    heading: str
    sentence: Sentence


def find(topic: Topic, sentences: Sequence[Sentence]) -> tuple[list[Finding], list[str]]:
    """Findings in the order in which to state them, and the labels of aspects that nothing was
    found for.
    """
    if topic.thing:
        return _about_thing(topic, topic.thing, sentences)
    return _about_question(topic, sentences), []


def heading_of(label: str) -> str:
    return label[:1].upper() + label[1:]


def _about_thing(
    topic: Topic, thing: str, sentences: Sequence[Sentence]
) -> tuple[list[Finding], list[str]]:
    about = [
        each
        for each in sentences
        if subject_score(thing, each) > 0 and (topic.aspects or is_subject(thing, each))
    ]
    definitions = sorted(
        (each for each in about if defines(thing, each.text)), key=lambda each: _place(thing, each)
    )
    found = [Finding(thing, each) for each in definitions[:1]]
    gaps: list[str] = []
    for wanted in topic.aspects or all_aspects():
        scored = [
            (said + subject_score(thing, each) + form_score(each) + _asked(topic, each), each)
            for each in about
            if (said := aspect_score(wanted, each)) >= _FEWEST_ASPECT_POINTS
        ]
        chosen = _best(
            scored,
            _per_aspect(topic),
            found,
            second_best=_SECOND_BEST if topic.wants_advice else _SECOND_BEST_ANSWER,
        )
        found += [Finding(heading_of(wanted.label), each) for each in chosen]
        if topic.aspects and not scored:
            gaps.append(wanted.label)
    if not topic.aspects:
        general = [(subject_score(thing, each) + form_score(each), each) for each in about]
        found += [
            Finding(thing, each) for each in _best(general, max(0, _ENOUGH - len(found)), found)
        ]
    advice = [
        (subject_score(thing, each), each)
        for each in about
        if FIT.score(each.text) and mentions(thing, each.text)
    ]
    kept = sorted(found[: _MOST_FINDINGS - 1], key=lambda each: each.heading != thing)
    return [
        *kept,
        *(
            Finding(heading_of(FIT.label), each)
            for each in _best(advice, 1, kept)
            if topic.wants_advice
        ),
    ], gaps


def _per_aspect(topic: Topic) -> int:
    """A table of many aspects needs one sentence each; who asks about one thing only wants to
    know more.
    """
    if not topic.aspects:
        return 1
    return _PER_ASPECT if topic.wants_advice else _PER_ASPECT + 1


def _asked(topic: Topic, sentence: Sentence) -> float:
    """How many of the question's own words a sentence has."""
    return (
        0.0
        if topic.wants_advice
        else float(sum(has_stem(s, stems_of(sentence.text)) for s in topic.stems))
    )


def _place(thing: str, sentence: Sentence) -> tuple[bool, int]:
    """Definitions in documents about the thing come first, then those near a document's beginning."""
    return (not mentions(thing, sentence.title), sentence.order)


def _about_question(topic: Topic, sentences: Sequence[Sentence]) -> list[Finding]:
    rarity = _rarities(topic, sentences)
    scored = []
    for each in sentences:
        if topic.names and not any(subject_score(name, each) for name in topic.names):
            continue
        share = _share(topic, each, rarity)
        if share >= _FEWEST_SHARE:
            scored.append((share + _bonus(topic, each) + 0.1 * form_score(each), each))
    chosen = _best(
        scored,
        _MOST_FINDINGS if topic.is_enumeration else _PER_QUESTION,
        [],
        second_best=_SECOND_BEST_ANSWER,
    )
    if not chosen and not topic.question.endswith("?"):
        chosen = _overview(topic, sentences)
    place = {
        source: index for index, source in enumerate(dict.fromkeys(each.source for each in chosen))
    }
    ordered = sorted(chosen, key=lambda each: (place[each.source], each.order))
    is_plain = bool(topic.names) or not topic.question.endswith("?")
    return [
        Finding(each.title, each if is_plain else _placed(each, ordered, topic)) for each in ordered
    ]


def _placed(sentence: Sentence, chosen: Sequence[Sentence], topic: Topic) -> Sentence:
    """With what it is about in front, where others answer differently and it does not say: "2
    March: 1,240 orders were lost".

    That is the heading of its section; where things are asked for ("Which laptop ..."), the
    title of its document.
    """
    headings = {each.heading for each in chosen if each.source == sentence.source}
    place = sentence.heading if len(headings) > 1 and sentence.heading != sentence.title else ""
    if not place and topic.is_enumeration and len({each.source for each in chosen}) > 1:
        place = sentence.title
    is_clear = not place or similar(place, sentence.standing_alone) > 0
    return sentence if is_clear else replace(sentence, said=f"{place}: {sentence.text}")


def _overview(topic: Topic, sentences: Sequence[Sentence]) -> list[Sentence]:
    """How each section begins of the documents that the subject names by their titles or
    paths; of all, if it names nothing at all.
    """
    about = [
        each
        for each in sentences
        if all(has_stem(s, stems_of(f"{each.title} {title_of(each.source)}")) for s in topic.stems)
    ]
    sections = {
        (each.source, each.heading): each
        for each in reversed(about)
        if form_score(each) > -_LEANS_HEAVILY
    }
    firsts = sorted(sections.values(), key=lambda each: (each.source, each.order))
    if len(firsts) <= _MOST_FINDINGS:
        return firsts
    return list({each.source: each for each in reversed(firsts)}.values())[::-1][:_MOST_FINDINGS]


def _share(topic: Topic, sentence: Sentence, rarity: Mapping[str, float]) -> float:
    """How much of the question's words a sentence has, by their rarity; those in its headings
    count less. 0.0 without any of its own.
    """
    said = {s for s in topic.stems if has_stem(s, stems_of(sentence.text))}
    near = {
        s for s in topic.stems if has_stem(s, stems_of(f"{sentence.title} {sentence.heading}"))
    } - said
    weighed = sum(rarity[s] for s in said) + _NEAR_WEIGHT * sum(rarity[s] for s in near)
    return weighed / (sum(rarity.values()) or 1.0) if said else 0.0


def _bonus(topic: Topic, sentence: Sentence) -> float:
    """For saying what the thing asked about is, for having it as the subject or in the
    document's title, and for aspects asked about.
    """
    subjects = topic.names or (topic.question.rstrip("?."),)
    opening = stems_of(" ".join(sentence.text.split()[:2]))
    begins = any(has_stem(s, opening) for s in topic.stems)
    titled = sum(has_stem(s, stems_of(sentence.title)) for s in topic.stems) / max(
        1, len(topic.stems)
    )
    aspects = min(0.2, 0.05 * sum(aspect_score(wanted, sentence) for wanted in topic.aspects))
    return (
        0.4 * any(defines(name, sentence.text) for name in subjects)
        + 0.15 * begins
        + 0.3 * titled
        + aspects
    )


def _rarities(topic: Topic, sentences: Sequence[Sentence]) -> dict[str, float]:
    """A word that few sentences have tells more than one that all have; one that none has
    counts like one that a single one has.
    """
    bags = [stems_of(each.text) for each in sentences]
    return {
        s: math.log(1 + len(sentences) / max(1, sum(has_stem(s, bag) for bag in bags))) ** 2
        for s in topic.stems
    }


def _best(
    scored: list[tuple[float, Sentence]],
    most: int,
    already: Sequence[Finding],
    *,
    second_best: float = _SECOND_BEST,
) -> list[Sentence]:
    """The best that say something new; ties go to the earlier sentence."""
    chosen: list[Sentence] = []
    ranked = sorted(scored, key=lambda pair: (-pair[0], pair[1].order, pair[1].source))
    for score, sentence in ranked:
        if len(chosen) >= most or (chosen and score < ranked[0][0] * second_best):
            break
        others = [*chosen, *(each.sentence for each in already)]
        if all(similar(sentence.text, other.text) < _SAME for other in others):
            chosen.append(sentence)
    return chosen
