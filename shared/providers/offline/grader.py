"""The part of who scores answers. It cannot judge: it counts how many words of a right answer,
or of the request, an answer has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.providers.offline.aspects import content_words
from handoff_queue.shared.providers.offline.conversation import Conversation
from handoff_queue.shared.providers.offline.request_questions import request_in
from handoff_queue.shared.providers.offline.stems import has_stem, stems_of
from handoff_queue.shared.text.words import stem

_LOWEST, _HIGHEST = 1, 5


def is_asked_to_score(conversation: Conversation) -> bool:
    """Told by the form of the answer, a list of scores by criteria, and by the answers that
    are shown.
    """
    return '\n{"answer":' in conversation.task and "criterion" in _score_in(conversation).get(
        "properties", {}
    )


def grades(conversation: Conversation) -> dict[str, Any]:
    """The envelope with every criterion scored alike; of two answers, the one with more of the
    words is better.
    """
    shown = [json.loads(line) for line in conversation.task.splitlines() if line.startswith("{")]
    answers = [one for one in shown if "text" in one]
    wanted = next(
        (one["reference"] for one in shown if "reference" in one), request_in(conversation.task)
    )
    criteria = [one["criterion"] for one in shown if "criterion" in one]
    words = [stem(word) for word in content_words(wanted)]
    found = [sum(has_stem(word, stems_of(one["text"])) for word in words) for one in answers]
    is_duel = "answer" in _score_in(conversation)["properties"]
    scores = [
        {
            **({"answer": one["answer"]} if is_duel else {}),
            "criterion": criterion,
            **_score(count, len(words)),
        }
        for one, count in zip(answers, found, strict=True)
        for criterion in criteria
    ]
    best = [one["answer"] for one, count in zip(answers, found, strict=True) if count == max(found)]
    why = (
        "Counted, not judged: it has more of the words."
        if len(best) == 1
        else "Counted, not judged: both have as many of the words."
    )
    duel = {"better": best[0] if len(best) == 1 else "neither", "why": why} if is_duel else {}
    rest = {"status": "ok", "claims": [], "confidence": 0.1, "needs": None, "problem": None}
    return {**rest, "output": {"scores": scores, **duel}}


def _score(found: int, of: int) -> dict[str, Any]:
    share = found / of if of else 0.0
    score = _LOWEST + round((_HIGHEST - _LOWEST) * share)
    return {
        "why": f"Counted, not judged: {found} of {of} words of what was wanted stand in it.",
        "score": score,
    }


def _score_in(conversation: Conversation) -> Mapping[str, Any]:
    scores = (conversation.output_format or {}).get("properties", {}).get("scores", {})
    items = scores.get("items", {}) if isinstance(scores, Mapping) else {}
    return (
        items
        if isinstance(items, Mapping) and isinstance(items.get("properties", {}), Mapping)
        else {}
    )
