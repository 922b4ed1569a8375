"""What the product tells the model, read from its requests."""

from __future__ import annotations

import re

from handoff_queue.shared.agent.loop import LAST_TURN, TOO_LONG, UNUSABLE
from handoff_queue.testing.replies import Json

_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NUMBER = re.compile(r"\d+")
MAX_KIND_CHARS = 200


def find_loop_texts(request: Json) -> list[str]:
    """Return the texts of the agent loop that are new in a request. They are its last block, and
    the block before a note about the last turn.
    """
    content = request["messages"][-1]["content"]
    if isinstance(content, str):
        return []
    texts = [block.get("text", "") for block in content[-2:]]
    if len(texts) == 2 and texts[1] != LAST_TURN:
        del texts[0]
    return [text for text in texts if text.startswith((UNUSABLE, TOO_LONG, LAST_TURN))]


def get_kind(text: str) -> str:
    """Return a text without its quotes and numbers, so that equal kinds are equal texts."""
    return _NUMBER.sub("N", _QUOTED.sub("...", " ".join(text.split())))[:MAX_KIND_CHARS]


def get_agent(request: Json) -> str:
    """Return the beginning of the system prompt, which names the agent."""
    system = request.get("system", "")
    text = system if isinstance(system, str) else system[0]["text"]
    return str(re.split(r"[.\n,]", text, maxsplit=1)[0])[:40]
