"""What a request in plain words asks for: things to compare, aspects, or questions to answer
one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from handoff_queue.shared.providers.offline.aspects import aspect, content_words, known_aspects
from handoff_queue.shared.providers.offline.sentences import split

_CUE = (
    r"\b(?:for|in terms of|with regards? to|with respect to|regarding|concerning|in|on|by|when|where|if|so that|focus\w*|covering"
    r"|with a view to)\b"
)
_ASPECT_CUE = (
    r"(?:in terms of|with regards? to|with respect to|regarding|concerning|with a view to|focus(?:s?ing|s?es)? on|covering"
    r"|(?:needs?|requires?|wants?|cares? (?:about|for))|\bon\b|\bby\b|\btheir\b)"
)
_MOST_NAME_WORDS = 5
_MOST_CHARS = 4_000
"""Of a request that are looked at: what is wanted stands at its beginning, and reading stays fast.
"""
_QUESTION = r"^(?:how|what|why|when|where|which|who|does|do|is|are|can|should)\b"
_IMPERATIVE = (
    r"^(?:(?:and|then|also|finally|please),?\s+)*(?:(?:can|could|would) you\s+(?:please\s+)?)?"
    r"(?:explain|describe|summari[sz]e|outline|define|discuss|tell (?:me|us) about"
    r"|(?:give|write)(?: me| us)? (?:an? )?(?:short |brief )?(?:overview|summary|report|introduction|account) (?:of|on|about|to))\s+"
)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, understood. `things` has two or more names if it is a comparison; `topics` is
    what to answer otherwise.
    """

    text: str
    things: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def request_in(task: str) -> str:
    """The user's own words inside a task: in `<request>` tags, after `Request:`, or all of it."""
    tagged = re.search(r"<request>(.*?)</request>", task, re.DOTALL)
    if tagged:
        return tagged.group(1).strip()
    labelled = re.search(r"^request:\s*(.+)", task, re.DOTALL | re.MULTILINE | re.IGNORECASE)
    return (labelled.group(1) if labelled else task).strip()


def understand(text: str) -> Asking:
    """Read a request. Never fails: what is not understood is one topic as it stands."""
    text = re.sub(r"\b(vs|versus)\.", r"\1", text[:_MOST_CHARS], flags=re.IGNORECASE)
    folded = " ".join(text.split())
    things, rest = _compared(folded)
    if len(things) >= 2:
        return Asking(folded, tuple(things), tuple(_aspects_in(rest)))
    return Asking(
        folded,
        topics=tuple(_topics(text)),
        aspects=tuple(each.label for each in known_aspects(folded)),
    )


def listed(text: str) -> list[str]:
    """The items of "a, b and c"."""
    items = re.split(
        r"\s*[,;]\s*(?:and\s+|or\s+)?|\s+(?:and|or|&|versus|vs\.?|against)\s+", text.strip(" .?!:")
    )
    return list(dict.fromkeys(item.strip(" .?!:\"'") for item in items if item.strip(" .?!:\"'")))


def joined(items: list[str] | tuple[str, ...]) -> str:
    """The reverse of `listed`."""
    return (
        items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
    )


_COMPARISONS = (
    r"\b(?:compare|contrast|comparison (?:of|between))\s+(?:the\s+)?(?P<aspects>[\w, -]{3,60}?)\s+(?:of|in|between)\s+(?P<things>[^.?!:]+)",
    r"\b(?:compare|contrast|comparison (?:of|between))\s+(?P<things>[^?!:]+)",
    r"\bdifferences?\s+(?:in (?P<aspects>[\w, -]{3,60}?)\s+)?between\s+(?P<things>[^?!:]+)",
    r"\bhow (?:do|does)\s+(?P<things>[^?!:]+?)\s+(?:differ|compare)\b",
    r"\bwhich (?:one )?of\s+(?P<things>[^?!:]+)",
    r"(?<![\w.+#-])(?P<things>[\w.+#-]+(?: [\w.+#-]+)?(?:\s+(?:vs\.?|versus)\s+[\w.+#-]+(?: [A-Z][\w.+#-]*)?)+)",
    r"\b(?:choose|decide) between\s+(?P<things>[^?!:]+)",
    r"\b(?:should (?:i|we) (?:use|choose|pick|take)|is)\s+(?P<things>[\w.+#-]+(?:, [\w.+#-]+)*,? or [\w.+#-]+)\b",
)
_END_OF_NAMES = rf"\s+{_CUE}|[.;](?:\s|$)|\s+(?:and|then)\s+(?:say|tell|recommend|suggest|write|explain|give)\b|\s[-–—]\s"


def _compared(text: str) -> tuple[list[str], str]:
    """The things compared, and the words that may name aspects."""
    for pattern in _COMPARISONS:
        found = re.search(pattern, text, re.IGNORECASE)
        things = _names(found.group("things")) if found else []
        if found and len(things) >= 2:
            given = found.groupdict().get("aspects") or ""
            rest = re.sub(
                "|".join(re.escape(thing) for thing in things), " ", text, flags=re.IGNORECASE
            )
            return things, f"covering {given}. {rest}" if given else rest
    return [], text


def _names(text: str) -> list[str]:
    """The names in "A, B and C for a team that ..."."""
    head = re.split(_END_OF_NAMES, text, flags=re.IGNORECASE)[0]
    head = re.sub(r"^(?:how|the)\s+", "", head, flags=re.IGNORECASE)
    items = listed(re.sub(r"\s+(?:with|to)\s+", ", ", head, flags=re.IGNORECASE))
    names = [
        _name_of(
            re.sub(r"^(?:the|a|an|using|both|either)\s+", "", item, flags=re.IGNORECASE).split()
        )
        for item in items
    ]
    return list(
        dict.fromkeys(name for name in names if name and len(name.split()) <= _MOST_NAME_WORDS)
    )


def _name_of(words: list[str]) -> str:
    """Of a long item that begins like a proper name, only the name: "Milvus store their data"
    -> "Milvus".
    """
    named = list(takewhile(lambda word: any(ch.isupper() or ch.isdigit() for ch in word), words))
    return " ".join(named if named and len(words) > 2 else words)


def _aspects_in(text: str) -> list[str]:
    """Aspects: what stands after a cue ("needs filtering and durable storage"), then what the
    thesaurus finds elsewhere.
    """
    found: dict[str, str] = {}
    for cue in re.finditer(rf"{_ASPECT_CUE}\s+(?:the\s+)?([^.?!:]+)", text, re.IGNORECASE):
        for item in listed(cue.group(1)):
            phrase = re.sub(
                r"^(?:a|an|the|their|good|strong|is|its|of)\s+", "", item, flags=re.IGNORECASE
            )
            known = aspect(phrase)
            if content_words(phrase) and len(phrase.split()) <= 4:
                found.setdefault(known.key, phrase)
    for known in known_aspects(text):
        found.setdefault(known.key, known.label)
    return list(found.values())


def _topics(text: str) -> list[str]:
    """The questions of a request: its lines, its sentences that ask or order something, the
    items of "explain a, b and c".
    """
    items = [
        re.sub(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+", "", line).strip() for line in text.splitlines()
    ]
    wanted = [_wanted(item) for item in items]
    topics: list[str] = []
    for item, sentences in zip(items, wanted, strict=True):
        if sentences or not any(wanted) or not item.endswith((".", "!")):
            for part in _questions(sentences or [item]):
                topics += _items_of(part)
    named = [topic for topic in topics if content_words(topic)]
    return list(dict.fromkeys(named)) or [" ".join(text.split())]


def _wanted(item: str) -> list[str]:
    """Its sentences that ask or order; none: it only says something ("Our team is small.")."""
    return [
        sentence
        for sentence in split(item)
        if sentence.endswith("?")
        or re.match(rf"{_QUESTION}|{_IMPERATIVE}", sentence, re.IGNORECASE)
    ]


def _questions(sentences: list[str]) -> list[str]:
    """ "How does A work, and how does B?" -> both, each a question of its own; one that leans
    on the last ("does it ...") stays with it.
    """
    parts: list[str] = []
    for sentence in sentences:
        for part in re.split(
            r"(?<=[?])\s+|\s*,?\s+and\s+(?=(?:how|what|why|when|where|which|who)\b)", sentence
        ):
            if parts and re.search(
                r"\b(?:it|its|they|their|them|that|this|these|those)\b", part, re.IGNORECASE
            ):
                parts[-1] = f"{parts[-1].rstrip('?.!')} and {part[:1].lower()}{part[1:]}"
            elif part.strip():
                parts.append(part.strip())
    return [_as_question(part) for part in parts]


def _as_question(part: str) -> str:
    is_question = re.match(_QUESTION, part, re.IGNORECASE)
    return (
        f"{part[:1].upper()}{part[1:].rstrip('.,;')}{'' if part.endswith('?') else '?'}"
        if is_question
        else part
    )


def _items_of(part: str) -> list[str]:
    subject = re.sub(_IMPERATIVE, "", part, flags=re.IGNORECASE)
    items = listed(subject)
    is_list = subject != part and len(items) > 1 and all(len(item.split()) <= 4 for item in items)
    if is_list and not re.search(r"\b(?:of|in|for|with|between)\b", subject):
        return items
    return [subject.rstrip(".")] if subject else []
