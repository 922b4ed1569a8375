"""Tool calls: the definition of a tool for the model, and the result of each call."""

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
"""Characters of one tool result: about 6,000 tokens, paid again in every later turn."""
MOST_ERROR_CHARS = 500
MOST_CALLS = 64
"""Calls of one reply that are run. Each further call gets `TOO_MANY_CALLS` as its result."""
CUT_CALL = "the reply was cut off before this call was complete: call again, with shorter arguments"
MAY_HAVE_RUN = "interrupted: this tool may have run once already and is not safe to repeat; go on without, or check what it did"
TOO_MANY_CALLS = f"not run: at most {MOST_CALLS} calls of one reply are run; call again"
NOTHING_DONE = "nothing was done: see below"
NO_TURNS_LEFT = "not run: this was the last turn"
UNKNOWN_TOOL = "an unknown tool"
"""Text that replaces a tool name that a model has invented."""


def definition(tool: Tool) -> dict[str, object]:
    """Return the definition of a tool in the form of the Messages API."""
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
    """Run one call and return its result. An exception of the tool, also `SystemExit`, becomes
    one line for the model.

    The line holds the text of a `ToolFailed`, but no traceback and no text of other
    exceptions. Such a text may hold secrets of the tool, such as a URL with a key.
    """
    name = str(call.get("name"))
    tool = tools.get(name)
    if tool is None or tool.run is None:
        runnable = sorted(tool_name for tool_name, item in tools.items() if item.run)
        text = f"there is no tool {name[:60]!r} here; there are: {', '.join(runnable) or 'none'}"
        return observe_result(call, text, is_error=True)
    try:
        problem = argument_problem(call.get("input"), tool)
        if problem:
            return observe_result(call, f"{tool.name}: {problem}", is_error=True)
        output = tool.run(dict(call["input"]), replace(context, call_id=call["id"]))
        if isinstance(output, str):
            output = ToolOutput(output)
        return _shown(call, output)
    except BaseException as error:  # noqa: BLE001 - a user's tool may raise anything
        return observe_result(call, _failure(tool, error), is_error=True)


def _shown(call: Block, output: ToolOutput) -> ToolObserved:
    if output.images and not output.text:
        text = ""
    else:
        text = shorten_result(output.text)
    if not output.images:
        return observe_result(call, text)
    images: list[ObservedImage] = []
    for image in output.images:
        fields = {"media_type": image.media_type, "data": b64encode(image.data).decode()}
        images.append(ObservedImage.model_validate(fields))
    return observe_result(call, text).model_copy(update={"images": tuple(images)})


def _failure(tool: Tool, error: BaseException) -> str:
    """Return the line that tells the model about an exception of a tool."""
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
    """Return the defect of the arguments in one line, or None if they match the tool's schema."""
    try:
        problem = problem_with(arguments, tool.input_schema)
    except BrokenSchema as broken:
        return f"its own schema is broken: {broken}"
    if problem:
        return _line(f"bad arguments at {problem}")
    return None


def shorten_result(text: str) -> str:
    """Return the text. A text with more than `MOST_RESULT_CHARS` is cut and gets a note."""
    if len(text) <= MOST_RESULT_CHARS:
        return text or "(nothing)"
    return f"{text[:MOST_RESULT_CHARS]}\n[cut: {MOST_RESULT_CHARS} of {len(text)} characters are shown; ask for less at once]"


def _line(text: str) -> str:
    return " ".join(text.split())[:MOST_ERROR_CHARS]
