"""The shape of a request: fixed or not, and what of it could be worked on side by side."""

from __future__ import annotations

import re
from itertools import takewhile

from handoff_queue.shared.providers.offline.request_questions import listed, understand

_POLITE = r"^(?:(?:please|kindly|now)[, ]+|(?:can|could|would|will) you (?:please )?|i (?:want|need|would like) you to )*"
_FIXED = re.compile(
    _POLITE
    + r"(?:translate|extract|reformat|format|convert|classify|label|tag|sort|alphabeti[sz]e|correct|proofread|shorten|rephrase|transcribe"
    r"|condense|summari[sz]e|count|fill|rewrite|simplify|übersetze"
    r"|(?:put|turn|bring) (?:\S+ ){1,8}(?:in|into) (?:a |an |one )?(?:\w+ )?(?:letters|case|order|table|csv|json|yaml|list)"
    r"|(?:make|give me|write) (?:one|a|an) (?:\w+ )?(?:table|list)|which (?:is|are) the \w+ of these|is this (?:\w+ )+positive"
    r"|(?:write|compose|tell me|think of) (?:me |us )?(?:a|an|the) (?:[\w-]+ ){0,2}(?:poem|song|story|joke|speech|toast"
    r"|card|slogan|limerick|name)"
    r")\b",
    re.IGNORECASE,
)
_IN_A_LINE = re.compile(
    r"\bin (?:one|a|a single|two) (?:short )?(?:line|word|sentence|paragraph)s?\b", re.IGNORECASE
)
_COUNTED = re.compile(
    r"\b(?:(?:each|all|every one) (?:of )?(?:the |our |these |those |my )?|(?:the|our|these|those|my|about|some|around|over) )"
    r"(?P<count>\d{1,6})\s+(?:of them|(?!(?:pages?|lines?|words?|rows?|sentences?|days?|months?|years?|minutes?|people|percent)\b)\w+)",
    re.IGNORECASE,
)
_GOES_THROUGH = re.compile(
    r"\b(?:read|go through|work through|analy[sz]e|score|rate|check|review|list for each|each of|look through)\b",
    re.IGNORECASE,
)
_MANY_DOCUMENTS = 10
_LOOKS_INTO = re.compile(
    r"\b(?:compar\w+|contrast|rank|evaluat\w+|assess\w*|overview|profiles?|which|who|best|research\w*|investigat\w+|look into|prepare"
    r"|analy[sz]\w+|reports?|briefing|pros and cons|weigh|vergleich\w*|survey|study|market|choose|examine|review)\b",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(?:weigh|pros and cons of|compare|contrast|against each other|(?:of|on|for) each|each by itself|each (?:\w+ )?separately)\b",
    re.IGNORECASE,
)
_RUN = re.compile(
    r"(?:[^\W_][^,:;.?!\n]{0,50},\s+)+(?:and |or |und )?[^,:;.?!\n]{1,60}", re.IGNORECASE
)
_ITEM_ENDS = re.compile(
    r"\s(?:in|on|of|for|with|as|als|by|from|to|against|according|should|do|does|is|are|given|and tell|and say|compare)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"(?:an?|for|in|with|by|so|then|if|when|given)\s", re.IGNORECASE)
"""How a part of a sentence begins that is no item of the list before it."""
_ASKS = r"(?:how|what|why|when|where|which|who|whom|whose)\b"
_OPENS = rf"(?:{_ASKS}|(?:is|are|do|does|did|can|may|should|would|will|has|have)\s+(?:there|the|it|its|they|we|our|you|I)\b)"
_CLAUSE = re.compile(
    rf"[.;:!?]\s+|\n+|,\s+(?:and\s+)?(?={_OPENS})|,\s+(?=\w+ the\b)|\s+and\s+(?={_ASKS})",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+(.+\?)\s*$", re.MULTILINE)
_AT_LENGTH = re.compile(
    r"\b(?:report|research|briefing|study|dossier|sources|overview|each|look into|find out|analysis)\b",
    re.IGNORECASE,
)
_LEANS = re.compile(r"\b(?:it|its|they|their|them|he|she|his|her)\b", re.IGNORECASE)
_FEWEST_WORDS = 4
"""Of a question that is worth a run of its own."""


def is_fixed(request: str) -> bool:
    """Whether what comes out has a form, or a size, that leaves nothing to share out."""
    return _FIXED.match(request) is not None or _IN_A_LINE.search(request) is not None


def plain(request: str) -> str:
    """Without names of files and quoted texts: they are material, and say nothing about what
    is to be done.
    """
    unquoted = re.sub(r"\"[^\"]*\"|“[^”]*”|«[^»]*»", " ", request)
    return re.sub(r"(?<![\w/-])[\w/-]+\.[a-z]\w{1,4}\b|(?<![\w-])[\w-]+/(?=\W|$)", " ", unquoted)


def names_files(request: str) -> bool:
    return (
        re.search(r"[\w-]\.[a-z]\w{1,4}\b|(?<![\w-])[\w-]+/(?=\W|$)|\bdocuments?\b", request)
        is not None
    )


def clauses(request: str) -> list[str]:
    return [clause.strip() for clause in _CLAUSE.split(plain(request)) if clause.strip()]


def documents_in(request: str) -> int:
    """How many documents are to be gone through one by one; 0: not many."""
    if not _GOES_THROUGH.search(request):
        return 0
    count = max((int(found["count"]) for found in _COUNTED.finditer(request)), default=0)
    return count if count >= _MANY_DOCUMENTS else 0


def things_in(request: str) -> tuple[str, ...]:
    """What is compared, or looked into thing by thing."""
    said = plain(request)
    things = understand(said).things
    if len(things) > 2:
        return things
    return max(
        (_items(sentence) for sentence in re.split(r"(?<=[.?!])\s+|\n+", said)), key=len, default=()
    )


def questions_in(request: str) -> int:
    """How many questions there are that are worth a run of their own: a list of them, or those
    of a report.
    """
    items = _ITEM.findall(request)
    if items:
        return len(set(items))
    asked = [
        clause
        for clause in clauses(request)
        if re.match(rf"(?:and\s+)?{_ASKS}", clause, re.IGNORECASE)
    ]
    if _AT_LENGTH.search(plain(request)):
        return len(set(asked))
    return len(
        {each for each in asked if not _LEANS.search(each) and len(each.split()) >= _FEWEST_WORDS}
    )


def _items(sentence: str) -> tuple[str, ...]:
    """The items of its list: names where things are looked into, anything where they are held
    against each other.
    """
    if not _LOOKS_INTO.search(sentence) and not _AGAINST.search(sentence):
        return ()
    found: tuple[str, ...] = ()
    for run in _RUN.findall(sentence):
        listing = takewhile(
            lambda raw: not _GOES_ON.match(raw), listed(run.replace(" und ", " and "))
        )
        items = [item for raw in listing if (item := _ITEM_ENDS.split(raw)[0].strip())]
        named = [
            item
            for item in (_named(item, is_first=not index) for index, item in enumerate(items))
            if item
        ]
        best = (
            items
            if _AGAINST.search(sentence) and all(len(item.split()) <= 3 for item in items[1:])
            else named
        )
        found = max(found, tuple(dict.fromkeys(best)), key=len)
    return found


def _named(item: str, *, is_first: bool) -> str:
    """The proper name in an item; of the first one, behind what leads to it: "our competitors
    Acme" -> "Acme".
    """
    names: list[str] = re.findall(r"(?:(?<=\s)|^)[A-Z0-9][\w.+#-]*(?: [A-Z0-9][\w.+#-]*)*", item)
    if is_first:
        return names[-1] if names else ""
    return names[0] if names and item.startswith((names[0], "the ")) else ""
