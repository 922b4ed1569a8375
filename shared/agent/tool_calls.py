"""Tool calls: the definition of a tool for the model, the result of each call, and the threads
in which the calls run.

The number of threads is limited, and the thread of a call that takes too long is abandoned.
"""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, find_problem
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.telemetry import get_telemetry
from handoff_queue.shared.text.unicode_text import replace_lone_surrogates
from handoff_queue.shared.types.checkpoints import NoResult, ObservedImage, ToolObserved
from handoff_queue.shared.types.errors import HandoffError, StoreUnavailable
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.origins import DOCUMENT, Origin

MAX_RESULT_CHARS = 24_000
"""Characters of one tool result: about 6,000 tokens, paid again in every later turn."""
MAX_ERROR_CHARS = 500
"""Characters of the line that tells the model about an error."""
MAX_CALLS = 64
"""Calls of one reply that are run. Each further call gets `TOO_MANY_CALLS` as its result."""
CUT_CALL = "the reply was cut off before this call was complete: call again, with shorter arguments"
MAY_HAVE_RUN = (
    "interrupted: this tool may have run once already and is not safe to repeat; check its effect,"
    " or continue without its result"
)
TOO_MANY_CALLS = f"not run: at most {MAX_CALLS} calls of one reply are run; call again"
NOTHING_DONE = "nothing was done: see below"
NO_TURNS_LEFT = "not run: this was the last turn"
SAME_CALL = "not run again: an earlier call had the same arguments, and its result is above"
SAME_RESULT = "another call of this conversation had the same result"
"""Calls of one reply may end in any order, so the other call may be below."""
NO_RESULT_TEXTS = {
    NoResult.CUT_CALL: CUT_CALL,
    NoResult.MAY_HAVE_RUN: MAY_HAVE_RUN,
    NoResult.TOO_MANY_CALLS: TOO_MANY_CALLS,
    NoResult.NOTHING_DONE: NOTHING_DONE,
    NoResult.NO_TURNS_LEFT: NO_TURNS_LEFT,
    NoResult.SAME_CALL: SAME_CALL,
    NoResult.SAME_RESULT: SAME_RESULT,
}
"""The line that the model gets for a call without a result of its tool."""
REPEATED = frozenset({NoResult.SAME_CALL, NoResult.SAME_RESULT})
"""Repeated calls that brought nothing new."""
REPEATED_OUTPUT = ToolOutput(SAME_RESULT, origins=(), is_repeated=True)
"""Output of a tool whose whole result requests show already."""
TRY_OTHERWISE = "; try other arguments, or do without"
UNKNOWN_TOOL = "an unknown tool"
"""Text that replaces a tool name that a model has invented."""


MAX_AT_ONCE = 8
"""Tool calls of one handoff that run at the same time."""
MAX_ABANDONED_THREADS = 16
"""Abandoned calls of one tool that still run in this process. At this number the tool is not
called again.
"""
TICK_S = 0.25
"""Seconds between two checks of the claim and the timeouts while tools run."""
_log = get_log(__name__)


def build_definition(tool: Tool) -> dict[str, object]:
    """Return the definition of a tool in the form of the Messages API."""
    if tool.server_param is not None:
        return dict(tool.server_param)
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
    }


def observe_result(
    call: Block, text: str, *, is_error: bool = False, origins: tuple[Origin, ...] = ()
) -> ToolObserved:
    """Return the result of a call.

    Args:
        origins: origins of the text; empty: our own code wrote the text.
    """
    return ToolObserved(
        tool_use_id=call["id"],
        text=replace_lone_surrogates(text),
        is_error=is_error,
        origins=origins,
    )


def observe_no_result(call: Block, reason: NoResult) -> ToolObserved:
    """Return the line for a call without a result of its tool. A repetition does not count as an
    error.
    """
    observed = observe_result(call, NO_RESULT_TEXTS[reason], is_error=reason not in REPEATED)
    return observed.model_copy(update={"no_result": reason})


def run_tool(call: Block, tools: dict[str, Tool], context: ToolContext) -> ToolObserved:
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
        problem = find_argument_problem(call.get("input"), tool)
        if problem:
            return observe_result(call, f"{tool.name}: {problem}", is_error=True)
        output = _run_tool(tool, call["input"], replace(context, call_id=call["id"]))
        if isinstance(output, str):
            output = ToolOutput(output)
        origins = tool.result_origins if output.origins is None else output.origins
        return _observe_output(call, output, origins)
    except BaseException as error:  # noqa: BLE001 - a user's tool may raise anything
        origins = _find_failure_origins(tool, error)
        return observe_result(call, _describe_failure(tool, error), is_error=True, origins=origins)


def _run_tool(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> str | ToolOutput:
    """Run the tool. If Redis was away, run it again: a failure of the store is not a result for the
    model. The loop ends when the call is abandoned, or with the time of the handoff.
    """
    assert tool.run is not None
    while True:
        try:
            return tool.run(dict(arguments), context)
        except StoreUnavailable:
            is_over = context.is_abandoned() or context.remaining_s() <= 0
            if is_over or not tool.repeatable:
                raise
        time.sleep(TICK_S)


def _find_failure_origins(tool: Tool, error: BaseException) -> tuple[Origin, ...]:
    """Return the origins of the line about an exception. A tool wrote the text of a
    `ToolFailed`. A failed search in documents has no text of a document.
    """
    if not isinstance(error, ToolFailed) or tool.result_origins == (DOCUMENT,):
        return ()
    return tool.result_origins


def _observe_output(call: Block, output: ToolOutput, origins: tuple[Origin, ...]) -> ToolObserved:
    if output.is_repeated:
        return observe_no_result(call, NoResult.SAME_RESULT)
    if output.images and not output.text:
        text = ""
    else:
        text = shorten_result(output.text)
    observed = observe_result(call, text, origins=origins)
    if not output.images:
        return observed
    images: list[ObservedImage] = []
    for image in output.images:
        fields = {"media_type": image.media_type, "data": b64encode(image.data).decode()}
        images.append(ObservedImage.model_validate(fields))
    return observed.model_copy(update={"images": tuple(images)})


def _describe_failure(tool: Tool, error: BaseException) -> str:
    """Return the line that tells the model about an exception of a tool."""
    kind = type(error).__name__
    if isinstance(error, ToolFailed):
        try:
            return _cut_line(str(error))
        except BaseException as again:  # noqa: BLE001 - a user's subclass may have any `__str__`
            kind = type(again).__name__
    elif isinstance(error, HandoffError):
        return _cut_line(f"{tool.name} failed: {kind}")
    return _cut_line(f"{tool.name} failed with {kind}{TRY_OTHERWISE}")


def find_argument_problem(arguments: object, tool: Tool) -> str | None:
    """Return the defect of the arguments in one line, or None if they match the tool's schema."""
    try:
        problem = find_problem(arguments, tool.input_schema)
    except BrokenSchema as broken:
        return f"its own schema is broken: {broken}"
    if problem:
        return _cut_line(f"bad arguments at {problem}")
    return None


def shorten_result(text: str) -> str:
    """Return the text. A text with more than `MAX_RESULT_CHARS` is cut and gets a note."""
    if len(text) <= MAX_RESULT_CHARS:
        return text or "(nothing)"
    return (
        f"{text[:MAX_RESULT_CHARS]}\n[cut: {MAX_RESULT_CHARS} of {len(text)} characters are"
        " shown; ask for less at once]"
    )


def _cut_line(text: str) -> str:
    """Return the first `MAX_ERROR_CHARS` characters of a text, in one line."""
    return " ".join(text.split())[:MAX_ERROR_CHARS]


@dataclass(slots=True)
class _Running:
    """A call whose thread runs."""

    call: Block
    tool_name: str
    thread: threading.Thread
    ends_at: float
    """Time limit of the call, by `time.monotonic`."""
    timeout_s: float
    abandoned: threading.Event


class _AbandonedThreads:
    """Threads of this process whose calls were abandoned. Python cannot end a thread from
    outside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, list[threading.Thread]] = {}

    def add(self, tool_name: str, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.setdefault(tool_name, []).append(thread)

    def count(self, tool_name: str) -> int:
        """Return the number of abandoned calls of this tool that still run."""
        with self._lock:
            threads = self._threads.pop(tool_name, [])
            alive = [thread for thread in threads if thread.is_alive()]
            if alive:
                self._threads[tool_name] = alive
            return len(alive)


_ABANDONED_THREADS = _AbandonedThreads()


def _abandon(running: _Running) -> None:
    running.abandoned.set()
    _ABANDONED_THREADS.add(running.tool_name, running.thread)


class ToolThreads:
    """Runs the tool calls of one reply."""

    def __init__(self, tools: dict[str, Tool], context: ToolContext) -> None:
        self._tools = tools
        self._context = context
        self._finished_calls: SimpleQueue[tuple[str, ToolObserved | BaseException]] = SimpleQueue()
        self._running: dict[str, _Running] = {}

    def run_calls(
        self,
        calls: Sequence[Block],
        on_tick: Callable[[], None],
        on_start: Callable[[Block], None] = lambda _call: None,
    ) -> Generator[ToolObserved]:
        """Yield the results of the calls, each as soon as it is complete.

        Calls that may change something run one after the other, in the given order: an earlier
        call may delete what a later one creates. All other calls run side by side.

        A call that takes longer than its tool's timeout fails, and its thread is abandoned. So are
        the running threads when the generator is closed.

        Args:
            on_tick: called every `TICK_S` while no result arrives. If it raises, the error passes
                through and the running threads are abandoned.
            on_start: called before each call starts. Its errors pass through, too.
        """
        waiting = list(calls)
        try:
            while waiting or self._running:
                yield from self._start_calls(waiting, on_start)
                try:
                    call_id, result = self._finished_calls.get(timeout=self._compute_wait_s())
                except Empty:
                    on_tick()
                    yield from self._abandon_slow_calls()
                    continue
                if self._running.pop(call_id, None) is None:
                    continue  # the call was left behind
                if isinstance(result, BaseException):
                    raise result
                yield result
                yield from self._abandon_slow_calls()
        finally:
            for running in self._running.values():
                _abandon(running)

    def _start_calls(
        self, waiting: list[Block], on_start: Callable[[Block], None]
    ) -> Iterator[ToolObserved]:
        """Start waiting calls while there is room, and remove them from the list. Yield the
        result of each call that is refused.
        """
        while len(self._running) < MAX_AT_ONCE:
            call = self._take_next(waiting)
            if call is None:
                return
            refusal = self._find_refusal(call)
            if refusal is not None:
                yield refusal
                continue
            on_start(call)
            self._start(call)

    def _take_next(self, waiting: list[Block]) -> Block | None:
        """Remove the first call that may start now, and return it. None: there is no such call."""
        is_changing = any(self._may_change(running.call) for running in self._running.values())
        for place, call in enumerate(waiting):
            if not is_changing or not self._may_change(call):
                return waiting.pop(place)
        return None

    def _may_change(self, call: Block) -> bool:
        """Return whether a call may change something."""
        tool = self._tools.get(str(call.get("name")))
        return tool is not None and tool.changes_something

    def _find_refusal(self, call: Block) -> ToolObserved | None:
        """Return an error as the call's result if too many calls of its tool are abandoned.
        Else None.
        """
        name = str(call.get("name"))
        left_behind = 0
        if name in self._tools:
            left_behind = _ABANDONED_THREADS.count(name)
        if left_behind < MAX_ABANDONED_THREADS:
            return None
        text = f"{name} was not run: {left_behind} earlier calls of this tool have not returned yet"
        return observe_result(call, text, is_error=True)

    def _start(self, call: Block) -> None:
        name = str(call.get("name"))
        tool = self._tools.get(name)
        label = UNKNOWN_TOOL
        timeout_s = inf
        if tool is not None:
            label = name
            if tool.timeout_s is not None:
                timeout_s = tool.timeout_s
        abandonment = threading.Event()
        thread = threading.Thread(
            target=copy_context().run,
            args=(self._work, call, label, abandonment),
            name=f"tool-{label}",
            daemon=True,
        )
        self._running[call["id"]] = _Running(
            call=call,
            tool_name=name,
            thread=thread,
            ends_at=time.monotonic() + timeout_s,
            timeout_s=timeout_s,
            abandoned=abandonment,
        )
        try:
            thread.start()
        except RuntimeError:
            text = f"{label} was not run: the worker cannot start another thread"
            self._finished_calls.put((call["id"], observe_result(call, text, is_error=True)))

    def _work(self, call: Block, label: str, abandonment: threading.Event) -> None:
        context = replace(self._context, is_abandoned=abandonment.is_set)
        try:
            with get_telemetry().tool(call, label) as span:
                result = run_tool(call, self._tools, context)
                span.record_tool_result(result)
            self._finished_calls.put((call["id"], result))
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it: a defect must not end as silence
            self._finished_calls.put((call["id"], error))

    def _compute_wait_s(self) -> float:
        """Return the seconds until the next tick or the next timeout."""
        next_timeout = min((running.ends_at for running in self._running.values()), default=0.0)
        return min(TICK_S, max(0.0, next_timeout - time.monotonic()))

    def _abandon_slow_calls(self) -> list[ToolObserved]:
        """Abandon the calls that have taken too long. Return an error as the result of each."""
        now = time.monotonic()
        results: list[ToolObserved] = []
        for running in list(self._running.values()):
            if running.ends_at > now:
                continue
            del self._running[running.call["id"]]
            _abandon(running)
            _log.warning(
                "a tool has used up its time", tool=running.tool_name, timeout_s=running.timeout_s
            )
            state = "it may still be running"
            if self._tools[running.tool_name].ends_when_abandoned:
                state = "it was ended"
            text = f"{running.tool_name} did not return within {running.timeout_s:g} s; {state}"
            results.append(observe_result(running.call, text, is_error=True))
        return results
