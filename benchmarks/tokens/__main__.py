"""`python -m benchmarks.tokens`: the tokens and the money of ten jobs. The systems are this
project, agents written by hand, LangGraph's supervisor and the Claude Agent SDK.

All use one model and one Messages-API server on this machine. The server replies from a script,
so that all systems read the same documents and give the same answers. It counts tokens by the
estimate of `estimate.py`, and models the prompt cache. Each row has an empty cache first. With
`--warm`, the cache holds the common prefixes of earlier jobs, as in a fleet that runs all day.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.arguments import filter_names, parse_not_negative
from benchmarks.fleets import BENCH, ROOT
from benchmarks.tokens import scripts, this_project
from benchmarks.tokens.by_hand import AUTHOR, RESEARCHER, Loop
from benchmarks.tokens.estimate import PartOf
from benchmarks.tokens.jobs import list_jobs
from benchmarks.tokens.prompt_cache import MIN_TOKENS
from benchmarks.tokens.server import CountingServer, SystemSpending
from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.usage import MICROUSD, NOTHING_USED
from handoff_queue.testing.replies import Script

MODEL = "claude-sonnet-5-5"
PATIENCE_S = 600.0
MAX_OF_HAND = 1.25
"""The target: most tokens of the team mode, as a multiple of the team that is written by hand."""
HAND = "by hand, team"
"""The row of the team that is written by hand."""
HAND_REVIEWED = f"{HAND} with review"
NO_REVIEW = ", no review"
"""The end of the name of a row whose jobs have no review."""
OWN_TEAM = "this project, team, own specialists"
TEAM = f"this project, {Mode.TEAM.value}"
TEAM_ROWS = (TEAM, OWN_TEAM, TEAM + NO_REVIEW, OWN_TEAM + NO_REVIEW)
"""Rows that this target is for."""


@dataclass(frozen=True, slots=True)
class ComparedSystem:
    """A row of the table."""

    name: str
    script: Script
    run: Callable[[CountingServer, str], Sequence[str]]
    """Runs all jobs against a server and a model, and returns the answers."""
    is_team: bool = False
    is_this_project: bool = False
    has_review: bool = False
    has_target: bool = False
    """True for the rows that the targets are for."""
    checks_claims: bool = False
    """True if each answer names the quote of each statement in a form that code has checked."""
    package: str = ""
    """Folder of the package in `.venv/bench` that the row needs."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A row with its result."""

    system: ComparedSystem
    spending: SystemSpending
    took_s: float

    @property
    def usd(self) -> float:
        return (self.spending.usage.cost_microusd or 0) / MICROUSD


def _make_this_project(
    mode: Mode, runner: str | None = None, *, has_review: bool = True
) -> ComparedSystem:
    def run(server: CountingServer, model: str) -> Sequence[str]:
        return this_project.run(server, model, mode, runner, has_review=has_review)

    name = f"this project, {mode.value}" + (f", runner {runner}" if runner else "")
    if not has_review:
        name += NO_REVIEW
    return ComparedSystem(
        name,
        scripts.answer_as_this_project,
        run,
        is_team=mode is not Mode.SINGLE,
        is_this_project=True,
        has_review=has_review and mode is not Mode.SINGLE,
        has_target=runner is None,
        checks_claims=True,
    )


def _make_own_specialists(mode: Mode, *, has_review: bool = True) -> ComparedSystem:
    """Return the row with the tool and the tasks of the agents that are written by hand. This
    project adds the rules for the form of an answer.
    """
    tools_line = "tools: [read_document]"
    files = {"assistant": this_project.format_specialist("assistant", RESEARCHER, tools_line)}
    name = "this project, single, own specialist"
    if mode is Mode.TEAM:
        files = {
            "worker": this_project.format_specialist(
                "worker", f"{scripts.WORKER} {RESEARCHER}", tools_line
            ),
            "author": this_project.format_specialist(
                "author", AUTHOR, "tools: []", "claims: false"
            ),
        }
        name = OWN_TEAM
    if not has_review:
        name += NO_REVIEW

    def run(server: CountingServer, model: str) -> Sequence[str]:
        return this_project.run(server, model, mode, own_files=files, has_review=has_review)

    return ComparedSystem(
        name,
        scripts.answer_as_this_project,
        run,
        is_team=mode is Mode.TEAM,
        is_this_project=True,
        has_review=has_review and mode is Mode.TEAM,
        has_target=True,
        checks_claims=True,
    )


def _make_hand_written(
    *, is_team: bool, has_cache: bool, has_review: bool = False
) -> ComparedSystem:
    def run(server: CountingServer, model: str) -> Sequence[str]:
        loop = Loop(server.url, model, has_cache=has_cache)
        if not is_team:
            return list(map(loop.run_alone, list_jobs()))
        return [loop.run_team(job, has_review=has_review) for job in list_jobs()]

    name = "by hand, " + ("team" if is_team else "one agent") + (", cached" if has_cache else "")
    if has_review:
        name += " with review"
    script = scripts.answer_as_hand_written_team if is_team else scripts.answer_as_one_agent
    return ComparedSystem(name, script, run, is_team=is_team, has_review=has_review)


def _make_with_documents(*, has_claims: bool) -> ComparedSystem:
    def run(server: CountingServer, model: str) -> Sequence[str]:
        loop = Loop(server.url, model, has_cache=False)
        run_one = loop.run_with_claims if has_claims else loop.run_with_documents
        return list(map(run_one, list_jobs()))

    name = "by hand, one agent, documents in the prompt"
    script = scripts.answer_as_one_agent
    if has_claims:
        name += ", checked claims"
        script = scripts.answer_with_claims
    return ComparedSystem(name, script, run, checks_claims=has_claims)


def _make_other_framework(
    name: str, script: Script, package: str, *command: str, is_team: bool
) -> ComparedSystem:
    def run(server: CountingServer, model: str) -> Sequence[str]:
        module, *options = command
        line = [sys.executable, "-m", f"benchmarks.tokens.{module}", server.url, model, *options]
        paths = os.pathsep.join([str(BENCH), str(ROOT)])
        process = subprocess.run(
            line,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
        )
        answers: list[str] = json.loads(process.stdout)
        return answers

    return ComparedSystem(name, script, run, is_team=is_team, package=package)


SYSTEMS = (
    _make_this_project(Mode.SINGLE),
    _make_this_project(Mode.AUTO),
    _make_this_project(Mode.TEAM),
    _make_this_project(Mode.TEAM, has_review=False),
    _make_this_project(Mode.ADAPTIVE),
    _make_own_specialists(Mode.SINGLE),
    _make_own_specialists(Mode.TEAM),
    _make_own_specialists(Mode.TEAM, has_review=False),
    _make_this_project(Mode.SINGLE, "agent-sdk"),
    _make_this_project(Mode.TEAM, "agent-sdk"),
    _make_hand_written(is_team=False, has_cache=False),
    _make_hand_written(is_team=False, has_cache=True),
    _make_with_documents(has_claims=False),
    _make_with_documents(has_claims=True),
    _make_hand_written(is_team=True, has_cache=False),
    _make_hand_written(is_team=True, has_cache=True),
    _make_hand_written(is_team=True, has_cache=False, has_review=True),
    _make_other_framework(
        "LangGraph supervisor",
        scripts.answer_as_langgraph,
        "langgraph_supervisor",
        "langgraph_supervisor_jobs",
        is_team=True,
    ),
    _make_other_framework(
        "Claude Agent SDK, one agent",
        scripts.answer_as_agent_sdk,
        "claude_agent_sdk",
        "agent_sdk_jobs",
        is_team=False,
    ),
    _make_other_framework(
        "Claude Agent SDK, subagents",
        scripts.answer_as_agent_sdk,
        "claude_agent_sdk",
        "agent_sdk_jobs",
        "team",
        is_team=True,
    ),
)


def measure(
    system: ComparedSystem, model: str, min_cached: int, *, is_warm: bool = False
) -> MeasuredRow:
    """Run all jobs in one system.

    Args:
        min_cached: shortest prefix in tokens that the prompt cache holds.
        is_warm: True: run the jobs once before the measurement. The cache keeps the prefixes that
            several jobs have.

    Raises:
        SystemExit: an answer lacks a fact, so the systems did not do the same work.
    """
    lenient = (
        "" if system.is_this_project else "other programs use fields of the API that are not stable"
    )
    with CountingServer(system.script, min_cached=min_cached, lenient=lenient) as server:
        if is_warm:
            system.run(server, model)
            server.start_warm()
        began = time.perf_counter()
        answers = system.run(server, model)
        took_s = time.perf_counter() - began
    for job, answer in zip(list_jobs(), answers, strict=True):
        if missing := job.find_missing(answer):
            raise SystemExit(f"{system.name}: {job.request}: not in the answer: {missing[0]}")
    return MeasuredRow(system, server.spending, took_s)


def format_table(rows: Iterable[MeasuredRow]) -> list[str]:
    lines = [
        "| system | calls | input | of it cached | output | USD | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        usage = row.spending.usage
        share = usage.cache_read_tokens / max(1, usage.input_tokens)
        lines.append(
            f"| {row.system.name} | {row.spending.calls} | {usage.input_tokens:,} | {share:.0%} |"
            f" {usage.output_tokens:,} | {row.usd:.4f} | {row.took_s:.1f} |"
        )
    return lines


def format_table_of_parts(rows: Iterable[MeasuredRow]) -> list[str]:
    """Return a table with the input tokens of each part of the requests."""
    lines = [
        f"| input tokens | {' | '.join(part.value for part in PartOf)} |",
        "|---" * (1 + len(PartOf)) + "|",
    ]
    for row in rows:
        counts = row.spending.parts
        lines.append(
            f"| {row.system.name} | {' | '.join(f'{counts[part]:,}' for part in PartOf)} |"
        )
    return lines


def format_targets(rows: Sequence[MeasuredRow]) -> list[str]:
    """Return the lines of the targets, as far as the rows allow it. A row is compared with other
    systems of its kind: one agent, a team, or a team with a review. Each row of this project is
    also compared with those whose claims are checked, too.
    """
    lines: list[str] = []
    by_name = {row.system.name: row for row in rows}
    for row in rows:
        if not row.system.has_target:
            continue
        others = [other for other in rows if _are_comparable(row.system, other.system)]
        if others:
            lines.append(_compare_with_cheapest(row, others, "system of its kind"))
        others = [other for other in others if other.system.checks_claims]
        if others:
            lines.append(_compare_with_cheapest(row, others, "one whose claims code checks"))
        hand = by_name.get(HAND_REVIEWED if row.system.has_review else HAND)
        if hand and row.system.is_team and row.system.name in TEAM_ROWS:
            usage, tokens_by_hand = row.spending.usage, hand.spending.usage.total_tokens
            paid_tokens = usage.total_tokens - usage.cache_read_tokens
            lines.append(
                f"{row.system.name} takes {usage.total_tokens / tokens_by_hand:.2f} times the"
                f" tokens of its parts done by hand, and {paid_tokens / tokens_by_hand:.2f} times"
                f" without its reads from the cache; the target is at most {MAX_OF_HAND}"
            )
    return lines


def _compare_with_cheapest(row: MeasuredRow, others: Sequence[MeasuredRow], kind: str) -> str:
    """Return the line of the target in money.

    Args:
        kind: words for the kind of the other systems.
    """
    cheapest = min(others, key=lambda other: other.usd)
    return (
        f"{row.system.name} costs {row.usd / cheapest.usd:.2f} times the cheapest other {kind}"
        f" ({cheapest.system.name}); the target is at most 1"
    )


def _are_comparable(project: ComparedSystem, other: ComparedSystem) -> bool:
    """Return whether another system is one of the same kind."""
    if other.is_this_project or other.is_team != project.is_team:
        return False
    return other.has_review == project.has_review


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument(
        "--rows", nargs="*", default=[], help="only rows whose names contain one of these texts"
    )
    parser.add_argument(
        "--min-cached",
        type=parse_not_negative,
        default=MIN_TOKENS,
        help="the shortest prefix in tokens that the prompt cache holds",
    )
    parser.add_argument(
        "--warm", action="store_true", help="run the jobs of each row once before its measurement"
    )
    options = parser.parse_args()
    if Prices().compute_microusd(NOTHING_USED, options.model) is None:
        parser.error(f"--model: the prices of {options.model!r} are not known: name another model")
    names = filter_names(parser, "--rows", options.rows, [system.name for system in SYSTEMS])
    rows: list[MeasuredRow] = []
    for system in SYSTEMS:
        if system.name not in names:
            continue
        if system.package and not (BENCH / system.package).exists():
            print(f"{system.name}: `.ci/install bench` installs it", file=sys.stderr)
            continue
        rows.append(measure(system, options.model, options.min_cached, is_warm=options.warm))
    if not rows:
        parser.exit(1, "no row was measured: install the packages, or choose other --rows\n")
    start = "filled before" if options.warm else "empty at first"
    print(
        f"{options.model}, cached prefixes of at least {options.min_cached} tokens, the cache of"
        f" each row {start}\n"
    )
    print(
        "\n".join(
            [*format_table(rows), "", *format_table_of_parts(rows), "", *format_targets(rows)]
        )
    )


if __name__ == "__main__":
    main()
