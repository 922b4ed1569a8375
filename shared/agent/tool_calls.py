"""Running the tool calls of one reply: in parallel, each in a thread that can be left, and each ending in an observation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from queue import Empty, SimpleQueue

from shared.agent.model import Block
from shared.agent.schemas import BrokenSchema, problem_with
from shared.agent.tool import Tool, ToolContext, ToolFailed
from shared.telemetry import telemetry
from shared.wire.characters import in_whole_characters
from shared.wire.checkpoints import Observed
from shared.wire.errors import HandoffError

MOST_RESULT_CHARS = 24_000
"""Of one tool result: some 6,000 tokens, paid again in every later turn. A tool that can page says so in its result."""
MOST_ERROR_CHARS = 500
TICK_S = 0.25
"""How often the waiting thread looks after the claim while tools run."""
CUT_CALL = "the reply was cut off before this call was complete: call again, with shorter arguments"
MAY_HAVE_RUN = "interrupted: this tool may have run once already and is not safe to repeat; go on without, or check what it did"
NOTHING_DONE = "nothing was done: see below"
NO_TURNS_LEFT = "not run: this was the last turn"
UNKNOWN = "an unknown tool"
"""What everybody may see of a name that a model has made up."""


def definition(tool: Tool) -> dict[str, object]:
    """The tool as the Messages API takes it."""
    if tool.server_param is not None:
        return dict(tool.server_param)
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
    }


def observed(call: Block, text: str, *, is_error: bool = False) -> Observed:
    return Observed(tool_use_id=call["id"], text=in_whole_characters(text), is_error=is_error)


def results_of(
    calls: Sequence[Block],
    tools: dict[str, Tool],
    context: ToolContext,
    on_tick: Callable[[], None],
) -> Iterator[Observed]:
    """The results of the calls, each as it comes.

    `on_tick` is called while tools run; what it raises passes through, and the threads are left to end by themselves.
    """
    done: SimpleQueue[Observed | BaseException] = SimpleQueue()

    def work(call: Block) -> None:
        name = str(call.get("name"))
        try:
            with telemetry().tool(call, name if name in tools else UNKNOWN) as span:
                result = result_of(call, tools, context)
                span.observed(result)
            done.put(result)
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread: a defect must not end as silence
            done.put(error)

    for call in calls:
        threading.Thread(
            target=copy_context().run,
            args=(work, call),
            name=f"tool-{call.get('name')}",
            daemon=True,
        ).start()
    left = len(calls)
    while left:
        try:
            result = done.get(timeout=TICK_S)
        except Empty:
            on_tick()
            continue
        if isinstance(result, BaseException):
            raise result
        left -= 1
        yield result


def result_of(call: Block, tools: dict[str, Tool], context: ToolContext) -> Observed:
    """Run one call. Whatever is wrong with it is told to the model in one line: no traceback, and no text of a stranger's exception,
    which may hold what the tool knows and the model must not (a URL with a key).
    """
    tool = tools.get(str(call.get("name")))
    if tool is None or tool.run is None:
        known = ", ".join(sorted(name for name, item in tools.items() if item.run)) or "none"
        return observed(
            call,
            f"there is no tool {str(call.get('name'))[:60]!r} here; there are: {known}",
            is_error=True,
        )
    problem = argument_problem(call.get("input"), tool)
    if problem:
        return observed(call, f"{tool.name}: {problem}", is_error=True)
    try:
        return observed(call, shortened(tool.run(dict(call["input"]), context)))
    except ToolFailed as error:
        return observed(call, _line(str(error)), is_error=True)
    except HandoffError as error:
        return observed(call, _line(f"{tool.name} failed: {type(error).__name__}"), is_error=True)
    except Exception as error:  # noqa: BLE001 - a user's tool may raise anything
        return observed(
            call,
            f"{tool.name} failed with {type(error).__name__}; try other arguments, or do without",
            is_error=True,
        )


def argument_problem(arguments: object, tool: Tool) -> str | None:
    """What is wrong with the arguments, in one line; None: nothing."""
    try:
        problem = problem_with(arguments, tool.input_schema)
    except BrokenSchema as broken:
        return f"its own schema is broken: {broken}"
    return _line(f"bad arguments at {problem}") if problem else None


def shortened(text: str) -> str:
    """The text, cut with a note if it is too long to be paid in every turn."""
    if len(text) <= MOST_RESULT_CHARS:
        return text or "(nothing)"
    return f"{text[:MOST_RESULT_CHARS]}\n[cut: {MOST_RESULT_CHARS} of {len(text)} characters are shown; ask for less at once]"


def _line(text: str) -> str:
    return " ".join(text.split())[:MOST_ERROR_CHARS]
