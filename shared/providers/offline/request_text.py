"""Parses a request in plain words into subjects to compare and their aspects, or into questions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from handoff_queue.shared.providers.offline.citations import CANNOT_ANSWER
from handoff_queue.shared.providers.offline.sentences import split_sentences
from handoff_queue.shared.providers.offline.words import find_content_words
from handoff_queue.shared.types.gates import REQUIREMENTS

MAX_CHARS = 4_000
"""Characters of a request that are read."""
_MAX_NAME_WORDS, _MAX_ASPECT_WORDS, _MAX_ITEM_WORDS = 5, 4, 4
_WORD = r"[\w.+#-]{1,60}"
_COMPARISONS = (
    r"\b(?:compare|contrast|comparison (?:of|between))\s+(?P<aspects>(?:the\s+)?[\w, -]{3,60}?)"
    r"\s+(?:of|in|between)\s+(?P<subjects>[^.?!:]+)",
    r"\b(?:compare|contrast|weigh|evaluate|comparison (?:of|between))\s+(?P<subjects>[^?!:]+)",
    r"\bdifferences?\s+between\s+(?P<subjects>[^?!:]+)",
    r"\bhow (?:do|does)\s+(?P<subjects>[^?!:]+?)\s+(?:differ|compare)\b",
    r"\bwhich (?:one )?of\s+(?P<subjects>[^?!:]+)",
    rf"(?<![\w.+#-])(?P<subjects>{_WORD}(?:\s+(?:vs\.?|versus)\s+{_WORD})+)",
    rf"\b(?:should (?:i|we) (?:use|choose|pick|take)|choose|decide) (?:between )?"
    rf"(?P<subjects>{_WORD}(?:, {_WORD})*,? (?:or|and) {_WORD})",
)
_END_OF_NAMES = re.compile(
    r"\s(?:for|in terms of|with (?:regards?|respect) to|regarding|concerning|in|on|by|when|where"
    r"|if|so that|focus\w*|covering)\b|[.;](?:\s|$)|\s[-–—]\s"
    r"|,?\s(?:and|then)\s(?:say|tell|recommend|suggest|write|explain|give)\b",
    re.IGNORECASE,
)
_ASPECT_CUE = re.compile(
    r"\b(?:in terms of|with (?:regards?|respect) to|regarding|concerning|focus(?:ing|es)? on"
    r"|covering|needs?|requires?|wants?|cares? about|for|in|on|by)\s+",
    re.IGNORECASE,
)
_NO_ASPECT = re.compile(r"(?:an?|us|me|my|our|your|someone)\b|.*\b(?:that|who|which)\b", re.I)
"""Beginning of a phrase about the reader of the answer, as in `for a team that needs filters`."""
_AND = re.compile(
    r"(?:(?<!\s)\s++)?[,;]\s*+(?:and\s+|or\s+)?"
    r"|(?<!\s)\s++(?:and|or|&|versus|vs\.?|against)\s+"
)
_QUESTION = r"(?:how|what|why|when|where|which|who|does|do|is|are|can|should)\b"
_IMPERATIVE = re.compile(
    r"(?:(?:and|then|also|finally|please),?\s+){0,5}(?:(?:can|could|would) you\s+(?:please\s+)?)?"
    r"(?:explain|describe|summari[sz]e|outline|define|discuss|tell (?:me|us) about"
    r"|(?:give|write)(?: me| us)? (?:an? )?(?:short |brief )?"
    r"(?:overview|summary|report|introduction|account) (?:of|on|about|to))\s+",
    re.IGNORECASE,
)
_WANTED = re.compile(rf"{_QUESTION}|{_IMPERATIVE.pattern}", re.IGNORECASE)
_NEXT_QUESTION = re.compile(
    r"(?<!\s)(?:\s*+,)?\s++and\s++(?=(?:how|what|why|when|where|which|who)\b)"
)
_PRONOUN = re.compile(r"\b(?:it|its|they|their|them|that|this|these|those)\b", re.IGNORECASE)
_MAKING = re.compile(
    r"(?:(?:please|now|then|also)[,!]?\s+|(?:can|could|would|will) you (?:please )?"
    r"|i(?:'d| would)? (?:want|need|like)(?: you)?(?: to)?\s+)*+"
    r"(?:translate|rewrite|rephrase|paraphrase|proofread|correct|convert|reformat|calculate|compute"
    r"|solve|classify|sing|implement|refactor|debug|transcribe|imagine|brainstorm|think of"
    r"|come up with|write|compose|draft|create|generate|invent|tell (?:me|us) an? (?:joke|story)"
    r"|an? (?:\w+ )?(?:poem|haiku|story|joke)|übersetze)\b",
    re.IGNORECASE,
)
"""Beginning of a request for work other than finding something in documents."""
_CAN_BE_QUOTED = re.compile(
    r"\b(?:summar\w+|overview|reports?|brief\w*|comparisons?|accounts?|introductions?|digests?"
    r"|lists?|tables?|notes?|answers?|explanations?|descriptions?|facts?|quotes?|findings?"
    r"|timelines?|glossar\w+|articles?|guides?|pages?|up|down|out)\b",
    re.IGNORECASE,
)
"""Kinds of texts that can consist of quotes."""
_WHOLE = re.compile(
    r"\b(?:documents?|files?|notes?|sources?|texts?|everything|all|summar\w+)\b", re.I
)
_FIRST_WORDS = 5
"""Words after `write` that are searched for the kind of the text."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The parts of a request."""

    subjects: tuple[str, ...] = ()
    """Two or more subjects to compare. Empty if the request is not a comparison."""
    aspects: tuple[str, ...] = ()
    """Aspects of the comparison."""
    topics: tuple[str, ...] = ()
    """Questions and subjects of a request that is not a comparison."""


def extract_request(task: str) -> str:
    """Return the words of the user inside a task: the text after `Request:`, or the whole task.
    The conditions that code adds to a task are left out.
    """
    task = task.partition(f"\n{REQUIREMENTS}")[0]
    match = re.search(r"^request:\s*(.+)", task, re.DOTALL | re.MULTILINE | re.IGNORECASE)
    if match:
        return match.group(1).strip()
    return task.strip()


def understand(text: str) -> Asking:
    """Parse the first `MAX_CHARS` of a request. A text without any known form is one topic."""
    text = text[:MAX_CHARS]
    subjects, rest = _split_comparison(" ".join(re.sub(r"\b(vs|versus)\.", r"\1", text).split()))
    if subjects:
        return Asking(subjects=subjects, aspects=_find_aspects(rest))
    return Asking(topics=_find_topics(text))


def split_items(text: str) -> list[str]:
    """Return the items of `a, b and c`, each once."""
    items: list[str] = []
    for part in _AND.split(text.strip(" .?!:")):
        item = part.strip(" .?!:\"'")
        if item and item not in items:
            items.append(item)
    return items


def explain_unanswerable(request: str) -> str | None:
    """Return the reason why quotes cannot answer a request, or None if they may."""
    text = " ".join(request.split())
    if not find_content_words(text) and not _WHOLE.search(text):
        return f"{CANNOT_ANSWER}: the request does not say what to look for in the documents."
    making = _MAKING.match(text)
    if making is None:
        return None
    first_words = text[making.end() :].split()[:_FIRST_WORDS]
    if _CAN_BE_QUOTED.search(" ".join(first_words)):
        return None
    return (
        f"{CANNOT_ANSWER}: it only quotes documents. "
        "Set ANTHROPIC_API_KEY for a model that can do this task."
    )


def _split_comparison(text: str) -> tuple[tuple[str, ...], str]:
    """Return the subjects to compare, and the text after them, which may name aspects."""
    for pattern in _COMPARISONS:
        match = re.search(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        subjects = _find_names(match["subjects"])
        if len(subjects) < 2:
            continue
        rest = text[match.start("subjects") :]
        for subject in subjects:
            rest = re.sub(re.escape(subject), " ", rest, flags=re.IGNORECASE)
        aspects = match.groupdict().get("aspects")
        if aspects:
            rest = f"covering {aspects}. {rest}"
        return subjects, rest
    return (), text


def _find_names(text: str) -> tuple[str, ...]:
    """Return the names in `A, B and C for a team that ...`."""
    head = _END_OF_NAMES.split(text, maxsplit=1)[0]
    names = []
    for item in split_items(re.sub(r"\s(?:with|to)\s", ", ", head)):
        name = re.sub(r"^(?:the|a|an|using|both|either|how)\s+", "", item, flags=re.IGNORECASE)
        words = name.split()
        first_proper_words = list(takewhile(_is_proper, words))
        if first_proper_words and len(words) > 2:
            words = first_proper_words
        if 0 < len(words) <= _MAX_NAME_WORDS:
            names.append(" ".join(words))
    return tuple(dict.fromkeys(names))


def _is_proper(word: str) -> bool:
    """Return whether a word begins like a name: with a capital letter or a digit."""
    return word[:1].isupper() or word[:1].isdigit()


def _find_aspects(text: str) -> tuple[str, ...]:
    """Return the aspects that follow words such as `in terms of`."""
    aspects = []
    for sentence in re.split(r"[.?!:]", text):
        for part in _ASPECT_CUE.split(sentence)[1:]:
            if _NO_ASPECT.match(part):
                continue
            for item in split_items(part):
                label = re.sub(r"^(?:the|their|its|good|strong|is)\s+", "", item)
                if find_content_words(label) and len(label.split()) <= _MAX_ASPECT_WORDS:
                    aspects.append(label)
    return tuple(dict.fromkeys(aspects))


def _find_topics(text: str) -> tuple[str, ...]:
    """Return the questions and subjects of a request.

    Only lines and sentences that ask or order something count. Without any, the whole text is
    the only topic.
    """
    parts: list[str] = []
    for line in text.splitlines():
        parts += _split_parts(re.sub(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+", "", line))
    topics: list[str] = []
    for part in parts:
        for topic in _find_subjects(part):
            if find_content_words(topic):
                topics.append(topic)
    return tuple(dict.fromkeys(topics)) or (" ".join(text.split()),)


def _split_parts(line: str) -> list[str]:
    """Return the parts of a line that ask or order something.

    A part with a pronoun is joined to the part before it.
    """
    sentences: list[str] = []
    for sentence in split_sentences(line):
        if sentence.endswith("?") or _WANTED.match(sentence):
            sentences += _NEXT_QUESTION.split(sentence)
    parts: list[str] = []
    for part in sentences:
        if parts and _PRONOUN.search(part):
            parts[-1] = f"{parts[-1].rstrip('?.!')} and {part[:1].lower()}{part[1:]}"
        else:
            parts.append(part)
    return parts


def _find_subjects(part: str) -> list[str]:
    """Return a question as one subject, or the items of an order such as `describe a and b`."""
    if re.match(_QUESTION, part, re.IGNORECASE):
        return [f"{part[:1].upper()}{part[1:].rstrip('.,;?')}?"]
    subject = _IMPERATIVE.sub("", part, count=1).rstrip(".")
    items = split_items(subject)
    longest = max((len(item.split()) for item in items), default=0)
    is_list = longest <= _MAX_ITEM_WORDS
    has_preposition = re.search(r"\b(?:of|in|for|with|between)\b", subject) is not None
    if subject != part.rstrip(".") and is_list and not has_preposition:
        return items
    return [subject]
