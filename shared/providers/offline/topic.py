"""What one research task is about, and how well a sentence answers it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from handoff_queue.shared.providers.offline.aspects import (
    Aspect,
    aspect,
    content_words,
    known_aspects,
)
from handoff_queue.shared.providers.offline.request_questions import listed, request_in, understand
from handoff_queue.shared.providers.offline.sentences import Sentence, words_of
from handoff_queue.shared.text.words import stem

FIT = Aspect(
    "which to choose",
    "fit",
    re.compile(
        r"\b(?:suits?|suited (?:to|for)|(?:good|best|right) (?:fit|choice)|recommended for|worth choosing)\b",
        re.IGNORECASE,
    ),
    None,
)
"""Advice: asked for by every comparison, and not missed where documents give none."""
_DEPENDENT_START = re.compile(
    r"^(?:it|its|this|that|these|those|they|their|such|however|but|and|so|also|then|he|she|here|there|both"
    r"|for example|in addition|otherwise)\b",
    re.IGNORECASE,
)
_LONG_WORDS = 34
_MOST_NAME_WORDS = 6
_HOW = r"\bhow (?:long|many|much|often|far|old|big|large|fast)\b"
"""What is asked for, and not what an answer would say."""
_OBJECTIVE = r"(?:Research|Find out|Look up|Investigate)(?: the (?:question|subject))?:?\s+"


@dataclass(frozen=True)
class Topic:
    """One thing with its aspects, or one question."""

    thing: str | None
    aspects: tuple[Aspect, ...]
    question: str
    wants_advice: bool = False
    """Whether it is one of several things to choose from."""

    @property
    def gap(self) -> str:
        """What is missing when nothing was found, as a phrase."""
        return self.thing or (
            f'an answer to "{self.question}"'
            if self.question.endswith("?")
            else self.question.rstrip(".")
        )

    @property
    def needs(self) -> str:
        """What would help, as a phrase."""
        return (
            f'documents that answer "{self.question}"'
            if self.thing is None and self.question.endswith("?")
            else f"documents about {self.gap}"
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What sentences should be about: the thing, or the proper names in the question."""
        if self.thing:
            return (self.thing,)
        words = [re.sub(r"['’]s$", "", word.strip("?.,;:!()\"'")) for word in self.question.split()]
        return tuple(
            dict.fromkeys(
                w
                for i, w in enumerate(words)
                if len(w) > 1 and (re.search(r"\w[A-Z]", w) or (i and w[:1].isupper()))
            )
        )

    @property
    def is_enumeration(self) -> bool:
        """Whether the question asks for all things that are so ("Which databases ...")."""
        asks = re.match(r"(?:which|list|name|who|what are)\b", self.question, re.IGNORECASE)
        return asks is not None and not re.search(r"\bshould\b", self.question, re.IGNORECASE)

    @cached_property
    def stems(self) -> tuple[str, ...]:
        return tuple(
            stem(word)
            for word in content_words(re.sub(_HOW, " ", self.question, flags=re.IGNORECASE))
        )


def topics_of(task: str) -> tuple[Topic, ...]:
    """Read a task, as our own planner writes it or as anybody does. A comparison has a topic
    for each thing.
    """
    words = request_in(task)
    first = words.splitlines()[0].strip() if words else ""
    ours = re.match(
        r"Research (?!the (?:question|subject):)(.+?)(?: with regard to (.+?))?\.?$", first
    )
    if ours and len(ours.group(1).split()) <= _MOST_NAME_WORDS:
        return (_thing(ours.group(1), listed(ours.group(2)) if ours.group(2) else []),)
    question = re.sub(
        _OBJECTIVE, "", first if re.match(_OBJECTIVE, first) else " ".join(words.split())
    )
    asked = understand(question)
    if asked.things:
        return tuple(_thing(thing, asked.aspects) for thing in asked.things)
    topic = Topic(None, tuple(known_aspects(asked.text)), asked.text)
    if len(topic.names) == 1 and topic.aspects and not topic.is_enumeration:
        return (Topic(topic.names[0], topic.aspects, topic.question),)
    return (topic,)


def _thing(name: str, labels: Sequence[str]) -> Topic:
    return Topic(name, tuple(aspect(label) for label in labels), name, wants_advice=True)


def mentions(name: str, text: str) -> bool:
    """Whether a text names a thing, whatever its case; a name of several words may be split up."""
    return all(
        re.search(rf"(?<![\w-]){re.escape(word)}(?:s|'s|’s)?(?![\w-])", text, re.IGNORECASE)
        for word in name.split()
    )


def subject_score(name: str, sentence: Sentence) -> float:
    """How surely a sentence is about a thing: 0.0 not at all, 3.0 when it begins with it."""
    text = sentence.text
    if re.match(rf"(?:the |a |an )?{re.escape(name)}\b", text, re.IGNORECASE):
        return 3.0
    if mentions(name, text):
        return 2.0
    shared_title = re.search(r"\b(?:and|or|vs|versus)\b|,|&", sentence.title) is not None
    return (
        1.0 if mentions(name, f"{sentence.title} {sentence.source}") and not shared_title else 0.0
    )


def is_subject(name: str, sentence: Sentence) -> bool:
    """Whether a sentence is about a thing rather than merely naming it: it begins with it, or
    stands in a document about it.
    """
    return subject_score(name, sentence) in (1.0, 3.0) or mentions(name, sentence.title)


def defines(name: str, text: str) -> bool:
    """Whether a text says what a thing is: "HNSW, short for ..., is a graph index"."""
    return (
        re.match(
            rf"(?:the )?{re.escape(name)}(?:,[^,]*,)? (?:is|are|was) (?:a|an|the|one)\b",
            text,
            re.IGNORECASE,
        )
        is not None
    )


def form_score(sentence: Sentence) -> float:
    """Penalties for sentences that do not stand by themselves, or go on too long."""
    text = sentence.text
    dependent = _DEPENDENT_START.match(text)
    leans = 0.0 if not dependent else 1.5 if dependent.group().lower() in ("it", "its") else 4.0
    return -leans - (0.5 if len(text.split()) > _LONG_WORDS else 0.0)


def aspect_score(wanted: Aspect, sentence: Sentence) -> float:
    """How much a sentence speaks of an aspect; the heading above it counts a little."""
    said = wanted.score(sentence.text)
    under = 1.0 if sentence.heading != sentence.title and wanted.score(sentence.heading) else 0.0
    return said + under if said else 0.0


def similar(one: str, other: str) -> float:
    """Share of words in common, 0.0 to 1.0."""
    left, right = set(words_of(one)), set(words_of(other))
    return len(left & right) / len(left | right) if left | right else 1.0
