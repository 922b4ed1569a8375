"""`python -m benchmarks.small_model`: how the product reacts to the answers of a small real model.

The model has 135 million parameters, so most of its answers are wrong. The table shows the calls,
the tokens, the answers that were sent back, and the ends of the handoffs. The lists below it have
the words of each repair, error and note. `--log FILE` writes each request with its reply.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import parse_positive, parse_seconds
from benchmarks.fleets import ROOT
from benchmarks.small_model.messages_api import Exchange, SmallModelServer
from benchmarks.small_model.model_process import small_model
from handoff_queue.shared.agent.loop import LAST_TURN, TOO_LONG, UNUSABLE
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.library import read_workflow
from handoff_queue.testing.replies import Json
from handoff_queue.testing.running_system import RunningSystem, running_system

EXAMPLES = ROOT / "examples"
WORKFLOW = Path(__file__).with_name("workflow.yaml")
MODES = [Mode.SINGLE, Mode.PIPELINE, Mode.TEAM, Mode.ADAPTIVE]
HEAD = (
    "| mode | case | status | s | calls | tokens in | out | sent back | cut | citations | ends |"
    "\n|---|---|---|---|---|---|---|---|---|---|---|"
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NUMBER = re.compile(r"\d+")
MAX_KIND_CHARS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job that has ended."""

    mode: Mode
    case: str
    result: JobResult
    exchanges: list[Exchange]
    took_s: float

    @property
    def row(self) -> str:
        ends = Counter(f"{end['status']}, {end['stop_reason']}" for end in self.result.results)
        figures = [
            f"{self.took_s:.0f}",
            str(len(self.exchanges)),
            f"{sum(each.input_tokens for each in self.exchanges):,}",
            f"{sum(each.output_tokens for each in self.exchanges):,}",
            str(sum(len(_find_loop_texts(each.request)) for each in self.exchanges)),
            str(sum(each.stop_reason == "max_tokens" for each in self.exchanges)),
            str(len(self.result.citations)),
            "; ".join(f"{count} {end}" for end, count in ends.items()),
        ]
        return f"| {self.mode} | {self.case} | {self.result.status} | {' | '.join(figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", type=Mode, choices=MODES, default=MODES)
    parser.add_argument("--jobs", type=parse_positive, default=3, help="cases of the golden set")
    parser.add_argument("--cases", nargs="+", default=[], help="ids of the cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-output", type=parse_positive, default=300, help="tokens of a reply")
    parser.add_argument(
        "--wait", type=parse_seconds, default=900.0, help="seconds until a job is cancelled"
    )
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    cases = _read_cases(parser, options.jobs, options.cases)
    outcomes: list[Outcome] = []
    with small_model(options.temperature) as model:
        server = SmallModelServer(model, options.seed, options.max_output, options.log)
        with server, running_system(server) as system:
            print(HEAD, flush=True)
            for mode in options.modes:
                for case in cases:
                    outcomes.append(_run_case(system, server, mode, case, options.wait))
                    print(outcomes[-1].row, flush=True)
    _print_reactions(outcomes)
    for violation in server.violations:
        print(f"a request broke a rule of the API: {violation}")


def _read_cases(
    parser: argparse.ArgumentParser, count: int, ids: list[str]
) -> list[dict[str, Any]]:
    """Return the cases with these ids, or cases of all parts of the golden set."""
    lines = (EXAMPLES / "golden.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    known = [case["id"] for case in cases]
    unknown = set(ids) - set(known)
    if unknown:
        parser.error(f"--cases: {' '.join(sorted(unknown))}: choose from {' '.join(known)}")
    if ids:
        return [case for case in cases if case["id"] in ids]
    return cases[:: max(1, len(cases) // count)][:count]


def _run_case(
    system: RunningSystem, server: SmallModelServer, mode: Mode, case: dict[str, Any], wait_s: float
) -> Outcome:
    before = len(server.exchanges)
    began = time.monotonic()
    workflow = read_workflow(str(WORKFLOW)) if mode is Mode.PIPELINE else None
    request = Request(
        case["request"], documents=EXAMPLES / case["docs"], mode=mode, workflow=workflow
    )
    job_id = system.jobs.submit(request)
    if not system.jobs.wait(job_id, wait_s).has_ended:
        system.jobs.cancel(job_id)
        system.jobs.wait(job_id, wait_s)
    result = system.jobs.result(job_id)
    took_s = time.monotonic() - began
    return Outcome(mode, case["id"], result, server.exchanges[before:], took_s)


def _print_reactions(outcomes: list[Outcome]) -> None:
    repairs: list[str] = []
    errors: list[str] = []
    notes: list[str] = []
    for outcome in outcomes:
        for exchange in outcome.exchanges:
            agent = _get_agent(exchange.request)
            repairs += [
                f"{agent}: {_get_kind(text)}" for text in _find_loop_texts(exchange.request)
            ]
            if exchange.error:
                errors.append(f"request refused: {_get_kind(exchange.error)}")
        for result in outcome.result.results:
            if result["error"]:
                errors.append(f"{result['status']}: {_get_kind(result['error'])}")
            notes += map(_get_kind, result["notes"])
        notes += map(_get_kind, outcome.result.notes)
    _print_counts("What the agents sent back to the model", repairs)
    _print_counts("Errors of handoffs", errors)
    _print_counts("Notes to the user", notes)


def _print_counts(title: str, texts: Iterable[str]) -> None:
    print(f"\n{title}:")
    for text, count in Counter(texts).most_common():
        print(f"  {count} x {text}")


def _find_loop_texts(request: Json) -> list[str]:
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


def _get_kind(text: str) -> str:
    """Return a text without its quotes and numbers, so that equal kinds are equal texts."""
    return _NUMBER.sub("N", _QUOTED.sub("...", " ".join(text.split())))[:MAX_KIND_CHARS]


def _get_agent(request: Json) -> str:
    """Return the beginning of the system prompt, which names the agent."""
    system = request.get("system", "")
    text = system if isinstance(system, str) else system[0]["text"]
    return str(re.split(r"[.\n,]", text, maxsplit=1)[0])[:40]


if __name__ == "__main__":
    main()
