"""What a request in plain words asks for: things to compare, aspects, or questions to answer one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared.agent.offline.aspects import aspect, content_words, known_aspects

_CUE = r"\b(?:for|in terms of|with regards? to|with respect to|regarding|concerning|in|on|by|when|where|if|so that|focus\w*|covering|with a view to)\b"
_ASPECT_CUE = (
    r"(?:in terms of|with regards? to|with respect to|regarding|concerning|with a view to|focus(?:s?ing|s?es)? on|covering"
    r"|(?:needs?|requires?|wants?|cares? (?:about|for))|\bon\b|\bby\b|\btheir\b)"
)
_IMPERATIVE = (
    r"^(?:please\s+)?(?:(?:can|could|would) you\s+(?:please\s+)?)?(?:explain|describe|summari[sz]e|outline|define|discuss|tell (?:me|us) about"
    r"|(?:give|write)(?: me| us)? (?:an? )?(?:short |brief )?(?:overview|summary|report|introduction|account) (?:of|on|about|to))\s+"
)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, understood. `things` has two or more names if it is a comparison; `topics` is what to answer otherwise."""

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
    folded = " ".join(text.split())
    things, rest = _compared(folded)
    if len(things) >= 2:
        return Asking(folded, tuple(things), tuple(_aspects_in(rest)))
    return Asking(folded, topics=tuple(_topics(text)), aspects=tuple(each.label for each in known_aspects(folded)))


def listed(text: str) -> list[str]:
    """The items of "a, b and c"."""
    items = re.split(r"\s*[,;]\s*(?:and\s+|or\s+)?|\s+(?:and|or|&|versus|vs\.?|against)\s+", text.strip(" .?!:"))
    return list(dict.fromkeys(item.strip(" .?!:\"'") for item in items if item.strip(" .?!:\"'")))


def joined(items: list[str] | tuple[str, ...]) -> str:
    """The reverse of `listed`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _compared(text: str) -> tuple[list[str], str]:
    """The things compared, and the words that may name aspects."""
    for pattern in (
        r"\b(?:compare|contrast|comparison (?:of|between))\s+(?:the\s+)?(?P<aspects>[\w, -]{3,60}?)\s+(?:of|in|between)\s+(?P<things>[^.?!:]+)",
        r"\b(?:compare|contrast|comparison (?:of|between))\s+(?P<things>[^?!:]+)",
        r"\bdifferences?\s+(?:in (?P<aspects>[\w, -]{3,60}?)\s+)?between\s+(?P<things>[^?!:]+)",
        r"\bhow (?:do|does)\s+(?P<things>[^?!:]+?)\s+(?:differ|compare)\b",
        r"\bwhich (?:one )?of\s+(?P<things>[^?!:]+)",
        r"(?P<things>[\w.+#-]+(?: [\w.+#-]+)?(?:\s+(?:vs\.?|versus)\s+[\w.+#-]+(?: [A-Z][\w.+#-]*)?)+)",
        r"\b(?:choose|decide) between\s+(?P<things>[^?!:]+)",
        r"\b(?:should (?:i|we) (?:use|choose|pick|take)|is)\s+(?P<things>[\w.+#-]+(?:, [\w.+#-]+)*,? or [\w.+#-]+)\b",
    ):
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            things = _names(found.group("things"))
            if len(things) >= 2:
                given = found.groupdict().get("aspects") or ""
                cut = re.sub("|".join(re.escape(thing) for thing in things), " ", text, flags=re.IGNORECASE)
                return things, f"covering {given}. {cut}" if given else cut
    return [], text


def _names(text: str) -> list[str]:
    """The names in "A, B and C for a team that ..."."""
    head = re.split(
        rf"\s+{_CUE}|[.;](?:\s|$)|\s+(?:and|then)\s+(?:say|tell|recommend|suggest|write|explain|give)\b|\s[-–—]\s",
        text,
        flags=re.IGNORECASE,
    )[0]
    head = re.sub(r"\s+(?:with|to)\s+", ", ", re.sub(r"^(?:how|the)\s+", "", head, flags=re.IGNORECASE), flags=re.IGNORECASE)
    names = []
    for item in listed(head):
        words = re.sub(r"^(?:the|a|an|using|both|either)\s+", "", item, flags=re.IGNORECASE).split()
        if words and any(ch.isupper() for ch in words[0][1:] + words[0][:1]):
            named = [
                word for index, word in enumerate(words) if all(any(ch.isupper() or ch.isdigit() for ch in w) for w in words[: index + 1])
            ]
            words = named if len(words) > 2 else words
        if 0 < len(words) <= 5:
            names.append(" ".join(words))
    return list(dict.fromkeys(names))


def _aspects_in(text: str) -> list[str]:
    """Aspects: what stands after a cue ("needs filtering and durable storage"), then what the thesaurus finds elsewhere."""
    found: dict[str, str] = {}
    for cue in re.finditer(rf"{_ASPECT_CUE}\s+(?:the\s+)?([^.?!:]+)", text, re.IGNORECASE):
        for item in listed(cue.group(1)):
            phrase = re.sub(r"^(?:a|an|the|their|good|strong|is|its|of)\s+", "", item, flags=re.IGNORECASE)
            known = aspect(phrase)
            if content_words(phrase) and len(phrase.split()) <= 4:
                found.setdefault(known.key, phrase)
    for known in known_aspects(text):
        found.setdefault(known.key, known.label)
    return list(found.values())


def _topics(text: str) -> list[str]:
    """The questions of a request: its lines, its sentences with question marks, the items of "explain a, b and c"."""
    topics: list[str] = []
    for line in text.splitlines():
        item = re.sub(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+", "", line).strip()
        for part in re.split(r"(?<=[?])\s+|\s*,?\s+and\s+(?=(?:how|what|why|when|where|which|who)\b)", item):
            topics += _items_of(part.strip())
    named = [topic for topic in topics if content_words(topic)]
    return list(dict.fromkeys(named)) or [" ".join(text.split())]


def _items_of(part: str) -> list[str]:
    subject = re.sub(_IMPERATIVE, "", part, flags=re.IGNORECASE)
    items = listed(subject)
    is_list = subject != part and len(items) > 1 and all(len(item.split()) <= 4 for item in items)
    if is_list and not re.search(r"\b(?:of|in|for|with|between)\b", subject):
        return items
    return [part] if part else []
