"""Tool calls: the description of a tool for the model, and the observation that ends each call."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

from handoff_queue.shared.agent.schemas import BrokenSchema, problem_with
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.types.characters import in_whole_characters
from handoff_queue.shared.types.checkpoints import ObservedImage, ToolObserved
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.model import Block

MOST_RESULT_CHARS = 24_000
"""Characters of one tool result: about 6,000 tokens, paid again in every later turn. A tool with
pages says so in its result.
"""
MOST_ERROR_CHARS = 500
MOST_CALLS = 64
"""Calls of one reply that are run; the model is told of each other call that it was not."""
CUT_CALL = "the reply was cut off before this call was complete: call again, with shorter arguments"
MAY_HAVE_RUN = "interrupted: this tool may have run once already and is not safe to repeat; go on without, or check what it did"
TOO_MANY_CALLS = f"not run: at most {MOST_CALLS} calls of one reply are run; call again"
NOTHING_DONE = "nothing was done: see below"
NO_TURNS_LEFT = "not run: this was the last turn"
UNKNOWN = "an unknown tool"
"""Text that replaces a tool name that a model has invented."""


def definition(tool: Tool) -> dict[str, object]:
    """Return the tool in the form of the Messages API."""
    if tool.server_param is not None:
        return dict(tool.server_param)
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
    }


def observe_result(call: Block, text: str, *, is_error: bool = False) -> ToolObserved:
    return ToolObserved(tool_use_id=call["id"], text=in_whole_characters(text), is_error=is_error)


def result_of(call: Block, tools: dict[str, Tool], context: ToolContext) -> ToolObserved:
    """Run one call. It never raises: each failure becomes one line for the model, also `sys.exit`
    in a tool.

    The line holds no traceback and no text of a foreign exception. That text may hold secrets of
    the tool, such as a URL with a key.
    """
    tool = tools.get(str(call.get("name")))
    if tool is None or tool.run is None:
        known = ", ".join(sorted(name for name, item in tools.items() if item.run)) or "none"
        return observe_result(
            call,
            f"there is no tool {str(call.get('name'))[:60]!r} here; there are: {known}",
            is_error=True,
        )
    try:
        problem = argument_problem(call.get("input"), tool)
        if problem:
            return observe_result(call, f"{tool.name}: {problem}", is_error=True)
        output = tool.run(dict(call["input"]), replace(context, call_id=call["id"]))
        return _shown(call, ToolOutput(output) if isinstance(output, str) else output)
    except BaseException as error:  # noqa: BLE001 - a user's tool may raise anything
        return observe_result(call, _failure(tool, error), is_error=True)


def _shown(call: Block, output: ToolOutput) -> ToolObserved:
    if output.images and not output.text:
        text = ""
    else:
        text = shorten_result(output.text)
    if not output.images:
        return observe_result(call, text)
    images = tuple(
        ObservedImage.model_validate(
            {"media_type": image.media_type, "data": b64encode(image.data).decode()}
        )
        for image in output.images
    )
    return observe_result(call, text).model_copy(update={"images": images})


def _failure(tool: Tool, error: BaseException) -> str:
    """Return the line for the model about a call that raised."""
    kind = type(error).__name__
    if isinstance(error, ToolFailed):
        try:
            return _line(str(error))
        except BaseException as again:  # noqa: BLE001 - a user's subclass may have any `__str__`
            kind = type(again).__name__
    elif isinstance(error, HandoffError):
        return _line(f"{tool.name} failed: {kind}")
    return _line(f"{tool.name} failed with {kind}; try other arguments, or do without")


def argument_problem(arguments: object, tool: Tool) -> str | None:
    """Return the defect of the arguments in one line, or None."""
    try:
        problem = problem_with(arguments, tool.input_schema)
    except BrokenSchema as broken:
        return f"its own schema is broken: {broken}"
    if problem:
        return _line(f"bad arguments at {problem}")
    return None


def shorten_result(text: str) -> str:
    """Return the text, cut with a note if it is too long to be paid in every turn."""
    if len(text) <= MOST_RESULT_CHARS:
        return text or "(nothing)"
    return f"{text[:MOST_RESULT_CHARS]}\n[cut: {MOST_RESULT_CHARS} of {len(text)} characters are shown; ask for less at once]"


def _line(text: str) -> str:
    return " ".join(text.split())[:MOST_ERROR_CHARS]
