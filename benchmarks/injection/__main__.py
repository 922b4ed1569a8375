"""`python -m benchmarks.injection`: the attacks of a public suite against a supervisor, a worker
and a Redis, with a model that obeys each instruction that it reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.arguments import parse_positive
from benchmarks.injection.agentdojo_suites import make_agentdojo
from benchmarks.injection.injecagent_suite import make_injecagent
from benchmarks.injection.measuring import ALLOW_ALL, HEAD, format_row, run
from benchmarks.injection.suite import Suite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=("agentdojo", "injecagent"), default="agentdojo")
    parser.add_argument("--data", type=Path, help="clone of InjecAgent's repository")
    parser.add_argument("--parts", nargs="+", help="parts of the suite; all by default")
    parser.add_argument("--share", type=parse_positive, default=1, help="run each tenth attack: 10")
    parser.add_argument("--allow-all", action="store_true", help="with a policy that allows all")
    parser.add_argument(
        "--person", action="store_true", help="a person approves the calls of the user's own task"
    )
    parser.add_argument("--list", action="store_true", help="list the attacks with an effect")
    options = parser.parse_args()
    policy = ALLOW_ALL if options.allow_all else None
    suite = _make_suite(parser, options.suite, options.data)
    parts = options.parts or sorted(suite.tools)
    unknown = set(parts) - set(suite.tools)
    if unknown:
        parser.error(f"--parts: {' '.join(sorted(unknown))}: choose from {' '.join(suite.tools)}")
    tasks = list(suite.tasks(parts, options.share))
    outcomes = run(suite, tasks, policy, has_person=options.person)
    print(HEAD)
    for name in parts:
        print(format_row(name, [outcome for outcome in outcomes if outcome.task.part == name]))
    print(format_row("all", outcomes))
    if options.list:
        for outcome in outcomes:
            if outcome.effects:
                print(outcome.task.part, outcome.task.user_task, outcome.task.injection)


def _make_suite(parser: argparse.ArgumentParser, name: str, data: Path | None) -> Suite:
    if name == "agentdojo":
        return make_agentdojo()
    if data is None:
        parser.error("--suite injecagent needs --data FOLDER, a clone of its repository")
    return make_injecagent(data)


if __name__ == "__main__":
    main()
