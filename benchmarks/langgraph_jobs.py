"""The same jobs as in LangGraph's documentation, with its SQLite checkpointer: one process, no
broker.

It uses LangGraph's defaults: a checkpoint after every step, written while the next step
begins. The packages are in `requirements-bench.txt`.
"""

from __future__ import annotations

import asyncio
import operator
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers_model import make_peers_model
from benchmarks.timed_model import DELAY, STEPS, call_for
from handoff_queue.shared.types.model import CallProgress, ModelReply
from handoff_queue.shared.types.plan import Synthesis

AT_ONCE = 500 if float(os.environ.get(DELAY, "0")) else 16
"""Jobs in flight. Without waiting calls, as many as a process of the other rows has slots:
more jobs would only wait for each other.
"""
model = make_peers_model()


class State(TypedDict):
    """State that the steps of a job pass on."""

    job: str
    plan: str
    parts: Annotated[list[str], operator.add]
    answer: str


Update = dict[str, Any]
Node = Callable[[State], Update] | Callable[[State], Awaitable[Update]]


def _ignore(_progress: CallProgress) -> None:
    """Ignore reports, because a graph has no display."""


def _get_text(reply: ModelReply) -> str:
    return str(reply.content[0]["text"])


def _call_model(schema: Update) -> str:
    return _get_text(model.reply(call_for(schema), _ignore))


def plan(state: State) -> Update:
    return {"plan": f"{state['job']}: {_call_model({'steps': {}})}"}


def work(_state: State) -> Update:
    return {"parts": [_call_model({})]}


def review(_state: State) -> Update:
    _call_model({"verdict": {}})
    return {}


def synthesize(state: State) -> Update:
    return {
        "answer": "\n\n".join(state["parts"])
        if model.synthesis is Synthesis.MERGE
        else _call_model({})
    }


async def _call_model_async(schema: Update) -> str:
    return _get_text(await model.reply_async(call_for(schema)))


async def plan_async(state: State) -> Update:
    return {"plan": f"{state['job']}: {await _call_model_async({'steps': {}})}"}


async def work_async(_state: State) -> Update:
    return {"parts": [await _call_model_async({})]}


async def review_async(_state: State) -> Update:
    await _call_model_async({"verdict": {}})
    return {}


async def synthesize_async(state: State) -> Update:
    return {
        "answer": "\n\n".join(state["parts"])
        if model.synthesis is Synthesis.MERGE
        else await _call_model_async({})
    }


def build_graph(checkpointer: Any, plan: Node, work: Node, review: Node, synthesis: Node) -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("review", review)
    graph.add_node("synthesis", synthesis)
    graph.add_edge(START, "plan")
    steps: list[str] = []
    for n in range(STEPS):
        steps.append(f"work_{n}")
    for step in steps:
        graph.add_node(step, work)
        graph.add_edge("plan", step)
    graph.add_edge(steps, "review")
    graph.add_edge("review", "synthesis")
    graph.add_edge("synthesis", END)
    return graph.compile(checkpointer=checkpointer)


def _build_job(number: int) -> tuple[Update, Update]:
    """Return a job's input and its configuration with a new LangGraph thread."""
    return {"job": f"job{number}", "plan": "", "parts": [], "answer": ""}, {
        "configurable": {"thread_id": uuid4().hex}
    }


class InThreads:
    """A thread for each job that runs."""

    def __init__(self, folder: Path) -> None:
        connection = sqlite3.connect(folder / "threads.sqlite", check_same_thread=False)
        self._graph = build_graph(SqliteSaver(connection), plan, work, review, synthesize)
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._each_s: list[float] = []

    def warm_up(self) -> None:
        self.run(1)

    def run(self, count: int) -> None:
        began = time.perf_counter()

        def run_job(number: int) -> float:
            assert self._graph.invoke(*_build_job(number))["answer"]
            return time.perf_counter() - began

        self._each_s = list(self._pool.map(run_job, range(count)))

    def list_durations(self) -> list[float]:
        return self._each_s

    def close(self) -> None:
        self._pool.shutdown()


class InAnEventLoop:
    """A task for each job."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._graph = self._loop.run_until_complete(self._make_graph(folder))
        self._each_s: list[float] = []

    async def _make_graph(self, folder: Path) -> Any:
        saver = await self._open.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(folder / "event_loop.sqlite"))
        )
        return build_graph(saver, plan_async, work_async, review_async, synthesize_async)

    def warm_up(self) -> None:
        self.run(1)

    def run(self, count: int) -> None:
        async def run_all() -> list[float]:
            return await asyncio.gather(*(run_job(number) for number in range(count)))

        async def run_job(number: int) -> float:
            async with slots:
                assert (await self._graph.ainvoke(*_build_job(number)))["answer"]
            return time.perf_counter() - began

        slots, began = asyncio.Semaphore(AT_ONCE), time.perf_counter()
        self._each_s = self._loop.run_until_complete(run_all())

    def list_durations(self) -> list[float]:
        return self._each_s

    def close(self) -> None:
        self._loop.run_until_complete(self._open.aclose())
        self._loop.close()
