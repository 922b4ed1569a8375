"""Messages that the loop writes to the model."""

from __future__ import annotations

LAST_TURN = (
    "This is your last turn: you can call no more tools. Answer now, from the results so far."
)
"""It asks for no length, because `TOO_LONG` may come before it."""
UNUSABLE = "Your answer cannot be used: "
TOO_LONG = "Your answer was cut off because it was too long."
"""Beginning of `build_too_long_prompt`."""
MIN_NAMED_WORDS = 50
"""A smaller number of words is not named, because the server did not report the tokens."""
EMPTY = f"{UNUSABLE}it is empty."


def build_too_long_prompt(output_tokens: int, advice: str = "") -> str:
    """Return the prompt for a shorter answer: about half as long, at 0.6 words for each token.

    Args:
        output_tokens: tokens of the answer that was cut off.
        advice: a sentence about the parts that can be shorter.
    """
    words = output_tokens * 3 // 10
    size = "much shorter"
    if words >= MIN_NAMED_WORDS:
        size = f"in at most {words:,} words"
    return f"{TOO_LONG} Give it again, whole, and {size}. {advice}".rstrip()
