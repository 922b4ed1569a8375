"""Words that the model wrote into the arguments of its calls. A tool or a page can return them, so
they prove nothing. Pure.
"""

from __future__ import annotations

from handoff_queue.shared.agent.conversation import Conversation, find_calls
from handoff_queue.shared.agent.quote_verification import FoldedText
from handoff_queue.shared.agent.seen_texts import iterate_parts


def are_own_words(quote: str, conversation: Conversation, tool: str) -> bool:
    """Return whether an argument of a call so far has the quote. A URL has it in its decoded form.

    Args:
        tool: the tool that asks, whose own calls do not count.
    """
    for reply in conversation.replies:
        for call in find_calls(reply):
            if call.get("name") == tool:
                continue
            for part in iterate_parts(call.get("input")):
                if FoldedText(part).find(quote) is not None:
                    return True
    return False
