"""Texts by which a conversation recognizes its stored checkpoints.

If you change a text, a handoff that runs during the upgrade has checkpoints with the old text. Its
worker then may prompt twice for the last answer, or run an interrupted effect again. So keep the
old text in the comparison of `Conversation` for one release, and then change it here.
"""

from __future__ import annotations

from handoff_queue.shared.agent.conversation import error_of_decliner
from handoff_queue.shared.agent.loop_prompts import LAST_TURN, TOO_LONG, UNUSABLE
from handoff_queue.shared.agent.tool_calls import CUT_CALL, MAY_HAVE_RUN, SAME_CALL, SAME_RESULT

STORED_TEXTS = {
    LAST_TURN: "This is your last turn: you can call no more tools. Answer now, from the results"
    " so far.",
    UNUSABLE: "Your answer cannot be used: ",
    TOO_LONG: "Your answer was cut off because it was too long.",
    CUT_CALL: "the reply was cut off before this call was complete: call again, with shorter"
    " arguments",
    MAY_HAVE_RUN: "interrupted: this tool may have run once already and is not safe to repeat;"
    " check its effect, or continue without its result",
    SAME_CALL: "not run again: an earlier call had the same arguments, and its result is above",
    SAME_RESULT: "another call of this conversation had the same result",
    error_of_decliner("m"): "m declined to answer",
}


def test_the_texts_in_stored_checkpoints_have_not_changed() -> None:
    for text, stored_text in STORED_TEXTS.items():
        assert text == stored_text
