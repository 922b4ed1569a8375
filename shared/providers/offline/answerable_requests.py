"""Which requests quotes can answer. The offline model writes, translates and computes nothing."""

from __future__ import annotations

import re

from handoff_queue.shared.providers.offline.aspects import content_words
from handoff_queue.shared.providers.offline.statements import CANNOT_ANSWER

_POLITE = (
    r"(?:(?:please|bitte|now|then|also|ok|hi|hello)[,!]?\s+|(?:can|could|would|will) you (?:please )?"
    r"|i(?:'d| would)? (?:want|need|like)(?: you)?(?: to (?:have )?)?|let'?s\s+|help me (?:to )?)*"
)
_ART = (
    r"(?:poems?|haikus?|limericks?|sonnets?|rhymes?|songs?|lyrics|raps?|jokes?|puns?|riddles?|(?:short )?stor(?:y|ies)"
    r"|fables?|novels?|slogans?|taglines?|jingles?|toasts?|tweets?)"
)
"""Texts that somebody has to make up."""
_WORKS = (
    rf"(?:{_ART}|speech(?:es)?|emails?|e-mails?|letters?|cards?|invitations?|advertisements?|ads?|dialogues?|mottos?"
    r"|scripts?|programs?|functions?|code|class(?:es)?|tests?|quer(?:y|ies)|regex(?:es)?|recipes?|images?|pictures?"
    r"|drawings?|logos?|names?|ideas?|puzzles?)"
)
"""The same, and what only a verb such as "write" tells from a word in a question."""
_EXTRACTS = (
    r"\b(?:summar\w+|overview|reports?|brief(?:ing)?s?|comparisons?|accounts?|introductions?|digests?|lists?|tables?"
    r"|notes?|answers?|explanations?|descriptions?|facts?|quotes?|findings?|profiles?|timelines?|glossar\w+|faqs?"
    r"|outlines?|articles?|essays?|guides?|memos?|analys[ie]s|reviews?|sections?|recommendations?|texts?|drafts?"
    r"|documents?|pages?|paragraphs?|words|sentences?|up|down|out)\b"
)
"""Texts that can be put together from quotes."""
_SOME = r"(?:(?:a|an|the|one|some|two|three|\d+|another|my|our)\s+)*(?:[\w-]+\s+){0,2}?"
_WRITES = r"(?:write|compose|draft|create|generate|invent|make up|author|pen|produce)"
_OTHER_WORK = (
    r"(?:(?:translate|rewrite|rephrase|paraphrase|proofread|reword|convert|reformat|calculate|compute|solve|sing"
    r"|implement|refactor|debug|transcribe|pretend|imagine|brainstorm|roleplay|act as|think of|come up with|remind"
    r"|multiply|divide|subtract|schreib\w*|dichte|übersetze)\b"
    r"|(?:sort|draw|paint|play|program|code|compile|run|execute|guess|predict|design|send|book|buy|call|order|delete"
    r"|install|deploy)\s+(?:a|an|the|me|us|my|our|this|that|it|them|these|those|all|to)\b)"
)
"""Work other than writing. A verb that is also a noun counts only with an object."""
_OBJECTIVE = re.compile(
    r"^(?:objective:\s*|(?:research|find out|look up|investigate)(?: the (?:question|subject))?:\s*)",
    re.IGNORECASE,
)
_MAKES_UP = re.compile(
    rf"^{_POLITE}(?:{_WRITES}\s+(?:me |us )?{_SOME}{_WORKS}"
    rf"|(?:make|give me|give us|tell me|tell us|prepare|do)\s+(?:me |us )?{_SOME}{_ART})\b",
    re.IGNORECASE,
)
_ONLY_NAMES_A_WORK = re.compile(
    rf"^{_POLITE}\s*(?:(?:a|an|one|some)\s+)?(?:[\w-]+\s+)?(?:poem|haiku|limerick|sonnet|joke|riddle|song|story)s?\b[^?]*$",
    re.IGNORECASE,
)
_WRITING = re.compile(rf"^{_POLITE}{_WRITES}\b(?P<what>.*)", re.IGNORECASE | re.DOTALL)
_WORKING = re.compile(rf"^{_POLITE}{_OTHER_WORK}", re.IGNORECASE)
_WHOLE = re.compile(
    r"\b(?:documents?|files?|notes?|sources?|pages?|texts?|everything|all|it|this|these|them|summar\w+|overview)\b",
    re.IGNORECASE,
)
_FIRST_WORDS = 12
"""Words after "write" in which the kind of the text stands."""


def why_not_answerable(request: str) -> str | None:
    """Return why quotes cannot answer a request, as a sentence. None: they may."""
    text = _OBJECTIVE.sub("", " ".join(request.split()))
    if not content_words(text) and not _WHOLE.search(text):
        return f"{CANNOT_ANSWER}: the request does not say what to look for in the documents."
    if _makes_something(text):
        return (
            f"{CANNOT_ANSWER}: it only quotes documents. "
            "Set ANTHROPIC_API_KEY for a model that can do this task."
        )
    return None


def _makes_something(text: str) -> bool:
    if _MAKES_UP.match(text) or _ONLY_NAMES_A_WORK.match(text) or _WORKING.match(text):
        return True
    writing = _WRITING.match(text)
    if writing is None:
        return False
    first_words = " ".join(writing["what"].split()[:_FIRST_WORDS])
    return re.search(_EXTRACTS, first_words, re.IGNORECASE) is None
