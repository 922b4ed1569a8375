"""`handoff eval` and `handoff compare` on a broker: jobs through the queue, a judge among
them, one purse, and nothing is paid twice.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.evaluation.answer_judge import DUEL_JOB
from handoff_queue.testing import MessagesServer
from tests.e2e.commands import BAD_INPUT, ROOT, Handoff, interrupt, said
from tests.e2e.scripted_comparison import SINGLE, TEAM, Measured
from tests.running_system import RunningSystem, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GATES = {"required": ["says so"]}
REVIEWER = "claude-sonnet-5-5"
RUBRIC = {"accuracy": "It is right."}


class System:
    """A supervisor and a worker on a broker, and the command that measures them."""

    def __init__(self, system: RunningSystem, server: MessagesServer, folder: Path) -> None:
        self.model = Measured()
        server.script = self.model
        self.handoff = Handoff(folder)
        self.jobs = system.jobs()
        self.environment = over(server, HANDOFF_REDIS_URL=system.redis_url)

    def golden(self, *cases: dict[str, Any]) -> None:
        lines = [json.dumps({"gates": GATES, "kind": case["id"][0], **case}) for case in cases]
        (self.handoff.folder / "golden.jsonl").write_text("\n".join(lines))

    def typed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.handoff.run(*arguments, stdin="", timeout_s=60.0, **self.environment)

    def run(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        done = self.typed(*arguments, "--json")
        assert done.returncode == exit_code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "stderr": done.stderr}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningSystem, MessagesServer]]:
    with MessagesServer(Measured()) as server:
        settings = over(server, HANDOFF_REVIEWER_MODEL=REVIEWER)
        with running_system(tmp_path_factory.mktemp("measured"), settings=settings) as system:
            yield system, server


@pytest.fixture
def system(running: tuple[RunningSystem, MessagesServer], tmp_path: Path) -> Iterator[System]:
    made = System(*running, tmp_path)
    yield made
    made.model.go.set()
    made.jobs.store.connection.close()


RIGHT = {"id": "right", "request": "right: what is it?", "rubric": RUBRIC, "reference": "It is so."}
WRONG = {"id": "wrong", "request": "wrong: what is it?"}


def test_each_request_is_done_in_each_mode_checked_and_judged(system: System) -> None:
    system.golden(RIGHT, WRONG)
    found = system.run("eval", "golden.jsonl", "--repeat", "2")

    rows = {row["mode"]: row for row in found["rows"]}
    assert {
        mode: (row["passed"], row["trials"], row["score"]["value"]) for mode, row in rows.items()
    } == {
        "single": (2, 4, 4.0),
        "team": (2, 4, 4.0),
    }
    assert rows["single"]["pass_rate"]["low"] == pytest.approx(0.15, abs=0.001)
    assert found["kinds"]["w"] == {"single": {"passed": 0, "of": 2}, "team": {"passed": 0, "of": 2}}
    assert system.model.calls == {"work": 8, "planner": 4, "assessor": 4, "judge": 4}
    assert found["advice"].startswith("Take single: ")


def test_every_call_of_the_judge_is_in_the_journal_and_the_accounts_of_a_job(
    system: System,
) -> None:
    system.golden(RIGHT)
    found = system.run("eval", "golden.jsonl", "--modes", "single", "--max-usd", "2")
    (trial,) = found["trials"]
    job, judge = (system.jobs.result(JobId(trial[name])) for name in ("job_id", "judged_by"))

    assert [one["assigned_to"] for one in (*job.handoffs, *judge.handoffs)] == [
        "generalist",
        "reviewer",
    ]
    assert found["cost_usd"] == pytest.approx(job.usage["cost_usd"] + judge.usage["cost_usd"])
    assert found["cost_usd"] > 0
    assert "it costs at most $2.0000" in found["stderr"]
    assert all(
        system.jobs.store.connection.redis.hget(keys.job(JobId(one.job_id)), "max_usd")
        for one in (job, judge)
    )
    assert "So it is." in json.dumps(judge.answer)
    assert "It is so." in system.model.briefs[0]
    assert "single" not in system.model.briefs[0]


def test_the_judge_uses_the_reviewers_model_in_every_variant(system: System) -> None:
    system.golden(RIGHT)
    system.environment["HANDOFF_REVIEWER_MODEL"] = REVIEWER
    system.run(
        "eval", "golden.jsonl", "--modes", "single", "--models", "claude-haiku-5-5,claude-opus-5-5"
    )

    assert system.model.models == {
        ("work", "claude-haiku-5-5"),
        ("work", "claude-opus-5-5"),
        ("judge", REVIEWER),
    }


def test_work_is_reviewed_by_another_model_than_wrote_it_if_settings_say_so(system: System) -> None:
    system.golden(RIGHT)
    system.run(
        "eval", "golden.jsonl", "--modes", "team", "--models", "claude-haiku-5-5", "--no-judge"
    )

    assert system.model.models == {
        ("planner", "claude-haiku-5-5"),
        ("work", "claude-haiku-5-5"),
        ("assessor", REVIEWER),
    }


def test_a_threshold_that_is_missed_is_named_and_ends_with_1(system: System) -> None:
    system.golden(RIGHT, WRONG)
    found = system.run(
        "eval",
        "golden.jsonl",
        "--modes",
        "single",
        "--no-judge",
        "--min-pass-rate",
        "0.6",
        exit_code=1,
    )

    assert "handoff: single passes 50.0%, at least 60.0% is wanted" in found["stderr"]
    system.run("eval", "golden.jsonl", "--modes", "single", "--no-judge", "--min-pass-rate", "0.5")


def test_work_under_a_name_is_not_repeated(system: System) -> None:
    system.golden(RIGHT, WRONG)
    first = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")
    calls = system.model.calls.copy()
    second = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")

    assert [one["job_id"] for one in second["trials"]] == [one["job_id"] for one in first["trials"]]
    assert system.model.calls == calls
    system.golden({**RIGHT, "request": "another: what is it?"})
    done = system.typed("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert "take a new name" in done.stderr


def test_an_interrupted_run_loses_no_job_and_continues_under_its_name(system: System) -> None:
    system.golden(RIGHT, {"id": "slow", "request": "slow: what is it?"}, WRONG)
    command = (
        "eval",
        "golden.jsonl",
        "--modes",
        "single",
        "--at-once",
        "1",
        "--no-judge",
        "--run",
        "cut-short",
    )
    with system.handoff.started(*command, **system.environment) as process:
        system.handoff.wait_for("1/3  right")
        wait_until(lambda: system.model.calls["work"] == 2, timeout_s=30, what="the slow one")
        assert interrupt(process) == 130
    assert "the same command with --run cut-short continues here" in system.handoff.read("err")
    system.model.go.set()
    found = system.run(*command)

    assert [one["case"] for one in found["trials"]] == ["right", "slow", "wrong"]
    assert system.model.calls["work"] == 3


def test_an_evaluation_never_exceeds_its_budget_and_names_the_unmeasured_cases(
    system: System,
) -> None:
    system.golden(*({**RIGHT, "id": f"right{n}"} for n in range(6)))
    found = system.run(
        "eval",
        "golden.jsonl",
        "--modes",
        "single",
        "--at-once",
        "2",
        "--max-usd",
        "0.02",
        exit_code=1,
    )

    assert found["cost_usd"] <= 0.02
    assert "raise --max-usd" in found["stderr"] or "the budget has no room" in found["stderr"]


def test_a_judge_that_sees_both_orders_chooses_the_better_answer(system: System) -> None:
    found = system.run("compare", "right: what is it?")

    assert (found["better"], [duel["better"] for duel in found["duels"]]) == (
        "second",
        ["second", "first"],
    )
    assert (found["first"]["score"], found["second"]["score"]) == (3.0, 5.0)
    assert found["advice"].startswith("Take team: its answer was found better in both orders, at ")
    assert [
        (SINGLE in brief, brief.index(TEAM) < brief.index(SINGLE)) for brief in system.model.briefs
    ] in (
        [(True, False), (True, True)],
        [(True, True), (True, False)],
    )
    assert all(DUEL_JOB in brief for brief in system.model.briefs)
    assert found["second"]["took"]["own_s"] > 0


def test_a_judge_that_prefers_a_position_makes_a_draw(system: System) -> None:
    system.model.judge = "first"
    found = system.run("compare", "right: what is it?")

    assert found["better"] == "neither"
    assert found["advice"].startswith(
        "Take single: no difference was found that holds in both orders"
    )


def test_gates_check_both_answers_and_neither_mode_sees_them(system: System) -> None:
    (system.handoff.folder / "gates.yaml").write_text("required: [team]\n")
    found = system.run("compare", "right: what is it?", "--gates", "gates.yaml", "--no-judge")

    assert (found["first"]["faults"], found["second"]["faults"]) == (
        ["It says nothing that fits 'team'."],
        [],
    )
    assert found["advice"].startswith(
        "Take team: its answer passes, and the answer of single does not"
    )
    assert system.model.calls["work"] == 2


def test_a_comparison_continues_under_its_name_and_repeats_no_question(system: System) -> None:
    first = system.run("compare", "right: what is it?", "--run", "twice")
    calls = system.model.calls.copy()
    second = system.run("compare", "right: what is it?", "--run", "twice")

    assert {name: value for name, value in second.items() if name != "stderr"} == {
        k: v for k, v in first.items() if k != "stderr"
    }
    assert system.model.calls == calls
    done = system.typed("compare", "another: what is it?", "--run", "twice")
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    assert "take a new name" in done.stderr


def test_an_interrupted_comparison_continues_under_its_name(system: System) -> None:
    command = ("compare", "slow: what is it?", "--no-judge", "--run", "broken-off")
    with system.handoff.started(*command, **system.environment) as process:
        wait_until(lambda: system.model.calls["work"] >= 1, timeout_s=30, what="a slow one")
        assert interrupt(process) == 130
    assert "the same command with --run broken-off continues here" in system.handoff.read("err")
    system.model.go.set()
    found = system.run(*command)

    assert found["second"]["faults"] == []
    assert system.model.calls["work"] == 2, "each of the two has done its work once"


def test_a_table_is_printed_for_people(system: System) -> None:
    system.golden(RIGHT)
    done = system.typed("eval", "golden.jsonl", "--modes", "single")
    both = system.typed("compare", "right: what is it?")

    assert "| single | 1 of 1 | 100% (21% to 100%)" in done.stdout
    assert "| sequential time" in both.stdout
    assert both.stdout.rstrip().splitlines()[-1].startswith("Take team")


def test_without_a_broker_an_interrupted_run_keeps_its_work_and_does_not_repeat_it(
    tmp_path: Path,
) -> None:
    handoff = Handoff(tmp_path)
    command = (
        "eval",
        str(ROOT / "examples" / "golden.jsonl"),
        "--modes",
        "single,team",
        "--no-judge",
        "--run",
        "at-home",
    )
    with handoff.started(*command) as process:
        handoff.wait_for("5/52  ")
        assert interrupt(process) == 130
    before = dict(re.findall(r"\d+/52  ([\w-]+  \w+)  (j-\w+)", handoff.read("err")))
    done = handoff.run(*command, "--json")

    assert done.returncode == 0, done.stderr
    after = {f"{one['case']}  {one['mode']}": one for one in json.loads(done.stdout)["trials"]}
    assert (len(after), len(before) >= 5) == (52, True)
    assert {name: after[name]["job_id"] for name in before} == before
    assert handoff.left_behind() == []
    assert list((tmp_path / "cache" / "interrupted").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("eval", "nope.jsonl"), "'nope.jsonl' cannot be read"),
        (("eval", "bad.jsonl"), "bad.jsonl:1: id: Field required"),
        (("eval", "good.jsonl", "--modes", "teem"), "'teem' is not a mode: did you mean team?"),
        (("eval", "good.jsonl", "--modes", "single,,team"), "has an empty name"),
        (("eval", "good.jsonl", "--modes", "single,single"), "names a value twice"),
        (
            ("eval", "good.jsonl", "--modes", "pipeline", "--workflow", "nope"),
            "there is no workflow 'nope'",
        ),
        (("eval", "good.jsonl", "--run", "A B"), "is not a name"),
        (("eval", "good.jsonl", "--repeat", "0"), "--repeat"),
        (("eval", "good.jsonl", "--min-pass-rate", "2"), "--min-pass-rate"),
        (("eval", "good.jsonl", "--models", "some-model"), "some-model needs a key"),
        (("eval", "docs.jsonl"), f"{RIGHT['id']}: no such folder of documents: nowhere"),
        (
            ("eval", "good.jsonl", "--no-judge", "--min-score", "3"),
            "--min-score needs a judge",
        ),
        (("eval", "good.jsonl", "--no-judge", "--judge-model", "m"), "leave one out"),
        (("compare", ""), "the request is empty"),
        (
            ("compare", "What?", "--modes", "single,team,auto"),
            "names 3 modes, and compare needs two",
        ),
        (("compare", "What?", "--rubric", "nope.yaml"), "nope.yaml"),
        (("compare", "What?", "--docs", "nowhere"), "nowhere"),
    ],
)
def test_an_impossible_measurement_is_one_line_before_the_start(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "good.jsonl").write_text(json.dumps({**RIGHT, "gates": GATES}))
    (tmp_path / "docs.jsonl").write_text(json.dumps({**RIGHT, "docs": "nowhere"}))
    (tmp_path / "bad.jsonl").write_text('{"request": "What?"}')

    assert words in said(Handoff(tmp_path).run(*arguments), BAD_INPUT)
