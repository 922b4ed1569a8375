"""The fact-checker's part. It cannot judge: it looks whether the figures of each claim stand
in the quotes behind it.
"""

from __future__ import annotations

import re
from typing import Any

from handoff_queue.shared.providers.offline.conversation import Conversation, KnownClaim

_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_FIELDS = {"verdict", "wrong", "why"}


def is_asked_to_check(conversation: Conversation) -> bool:
    """Told by the form of the answer."""
    return set((conversation.output_format or {}).get("properties", {})) == _FIELDS


def checks(conversation: Conversation) -> dict[str, Any]:
    """The envelope: a claim with a figure that no quote of it has is wrong; where no claim has
    a quote, nothing can be said.
    """
    claims = [claim for result in conversation.results for claim in result.claims if claim.quotes]
    wrong = [
        {"statement": claim.text, "why": f"no quote has {', '.join(odd)}"}
        for claim in claims
        if (odd := _unquoted(claim))
    ]
    verdict = "VETO" if wrong else "PASS" if claims else "CANNOT_SAY"
    why = (
        f"Counted, not judged: the figures of {len(claims)} claims were looked for in their quotes."
    )
    rest = {"status": "ok", "claims": [], "confidence": 0.1, "needs": None, "problem": None}
    return {**rest, "output": {"verdict": verdict, "wrong": wrong, "why": why}}


def _unquoted(claim: KnownClaim) -> list[str]:
    there = {figure for quote in claim.quotes for figure in _FIGURE.findall(quote)}
    return [figure for figure in dict.fromkeys(_FIGURE.findall(claim.text)) if figure not in there]
