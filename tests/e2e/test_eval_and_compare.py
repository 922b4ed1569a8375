"""`handoff eval` and `handoff compare` run and grade jobs within one budget, and repeat no paid
work.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.evaluation.answer_grader import DUEL_JOB
from handoff_queue.testing import MessagesServer
from tests.e2e.commands import (
    BAD_INPUT,
    ROOT,
    Handoff,
    HandoffInProcess,
    error_line,
    interrupt,
)
from tests.e2e.scripted_comparison import SINGLE, TEAM, ComparisonModel
from tests.running_system import RunningSystem, model_environment, running_system
from tests.waiting import wait_until

GATES = {"required": ["says so"]}
REVIEW_MODEL = "claude-sonnet-5-5"
RUBRIC = {"accuracy": "It is right."}
CASES_AT_HOME = 10
"""So many that the command still works when the test interrupts it."""


class EvaluatedSystem:
    """A running system with a scripted model, and the command that evaluates it."""

    def __init__(
        self, system: RunningSystem, server: MessagesServer, handoff: HandoffInProcess
    ) -> None:
        self.model = ComparisonModel()
        server.script = self.model
        self.handoff = handoff
        self.jobs = system.jobs()
        self.environment = model_environment(server, HANDOFF_REDIS_URL=system.redis_url)

    def write_cases(self, *cases: dict[str, Any]) -> None:
        lines = [json.dumps({"gates": GATES, "kind": case["id"][0], **case}) for case in cases]
        (self.handoff.folder / "golden.jsonl").write_text("\n".join(lines))

    def run_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.handoff.run(*arguments, stdin="", timeout_s=60.0, **self.environment)

    def run(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        completed = self.run_command(*arguments, "--json")
        assert completed.returncode == exit_code, completed.stderr
        report: dict[str, Any] = json.loads(completed.stdout)
        return {**report, "stderr": completed.stderr}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningSystem, MessagesServer]]:
    with MessagesServer(ComparisonModel()) as server:
        settings = model_environment(server, HANDOFF_REVIEW_MODEL=REVIEW_MODEL)
        with running_system(tmp_path_factory.mktemp("measured"), settings=settings) as system:
            yield system, server


@pytest.fixture
def system(
    running: tuple[RunningSystem, MessagesServer],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[EvaluatedSystem]:
    evaluated = EvaluatedSystem(*running, HandoffInProcess(tmp_path, capture=capfd))
    yield evaluated
    evaluated.model.release.set()
    evaluated.jobs.store.connection.close()


RIGHT = {"id": "right", "request": "right: what is it?", "rubric": RUBRIC, "reference": "It is so."}
WRONG = {"id": "wrong", "request": "wrong: what is it?"}


@pytest.mark.slow
def test_eval_runs_checks_and_grades_each_request_in_each_mode(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT, WRONG)
    report = system.run("eval", "golden.jsonl", "--repeat", "2")

    rows = {row["mode"]: row for row in report["rows"]}
    assert {
        mode: (row["passed"], row["trials"], row["score"]["value"]) for mode, row in rows.items()
    } == {
        "single": (2, 4, 4.0),
        "team": (2, 4, 4.0),
    }
    assert rows["single"]["pass_rate"]["low"] == pytest.approx(0.15, abs=0.001)
    assert report["kinds"]["w"] == {
        "single": {"passed": 0, "of": 2},
        "team": {"passed": 0, "of": 2},
    }
    assert system.model.calls == {"work": 8, "planner": 4, "assessor": 4, "grader": 4}
    assert report["advice"].startswith("Take single: ")


@pytest.mark.slow
def test_eval_stores_a_summary_for_the_console(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT, WRONG)
    first = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "stored")
    again = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "stored")

    (stored,) = [run for run in system.jobs.store.evaluations.list_newest() if run.run == "stored"]
    (variant,) = stored.variants
    assert (stored.golden, variant.mode, variant.model) == ("golden.jsonl", "single", None)
    assert (variant.passed, variant.trials, variant.score) == (1, 2, 4.0)
    assert stored.microusd == round(first["cost_usd"] * 1e6) == round(again["cost_usd"] * 1e6)


@pytest.mark.slow
def test_every_call_of_the_grader_is_in_the_journal_and_the_accounts_of_a_job(
    system: EvaluatedSystem,
) -> None:
    system.write_cases(RIGHT)
    report = system.run("eval", "golden.jsonl", "--modes", "single", "--max-usd", "2")
    (trial,) = report["trials"]
    job, grader = (system.jobs.result(JobId(trial[name])) for name in ("job_id", "graded_by"))

    assert [handoff["assigned_to"] for handoff in (*job.handoffs, *grader.handoffs)] == [
        "generalist",
        "reviewer",
    ]
    assert report["cost_usd"] == pytest.approx(job.usage["cost_usd"] + grader.usage["cost_usd"])
    assert report["cost_usd"] > 0
    assert "it costs at most $2.0000" in report["stderr"]
    assert all(
        system.jobs.store.connection.redis.hget(keys.job(JobId(member.job_id)), "max_usd")
        for member in (job, grader)
    )
    assert "So it is." in json.dumps(grader.answer)
    assert "It is so." in system.model.briefs[0]
    assert "single" not in system.model.briefs[0]


@pytest.mark.slow
def test_the_grader_uses_the_review_model_in_every_variant(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT)
    system.environment["HANDOFF_REVIEW_MODEL"] = REVIEW_MODEL
    system.run(
        "eval", "golden.jsonl", "--modes", "single", "--models", "claude-haiku-5-5,claude-opus-5-5"
    )

    assert system.model.models == {
        ("work", "claude-haiku-5-5"),
        ("work", "claude-opus-5-5"),
        ("grader", REVIEW_MODEL),
    }


@pytest.mark.slow
def test_the_assessor_uses_the_model_in_the_settings_and_not_the_writers_model(
    system: EvaluatedSystem,
) -> None:
    system.write_cases(RIGHT)
    system.run(
        "eval", "golden.jsonl", "--modes", "team", "--models", "claude-haiku-5-5", "--no-grader"
    )

    assert system.model.models == {
        ("planner", "claude-haiku-5-5"),
        ("work", "claude-haiku-5-5"),
        ("assessor", REVIEW_MODEL),
    }


@pytest.mark.slow
def test_eval_names_a_missed_threshold_and_exits_with_1(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT, WRONG)
    report = system.run(
        "eval",
        "golden.jsonl",
        "--modes",
        "single",
        "--no-grader",
        "--min-pass-rate",
        "0.6",
        exit_code=1,
    )

    assert "handoff: single passes 50.0%, at least 60.0% is wanted" in report["stderr"]
    system.run("eval", "golden.jsonl", "--modes", "single", "--no-grader", "--min-pass-rate", "0.5")


@pytest.mark.slow
def test_a_second_run_with_the_same_name_repeats_no_work(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT, WRONG)
    first = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")
    calls = system.model.calls.copy()
    second = system.run("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")

    assert [trial["job_id"] for trial in second["trials"]] == [
        trial["job_id"] for trial in first["trials"]
    ]
    assert system.model.calls == calls
    system.write_cases({**RIGHT, "request": "another: what is it?"})
    completed = system.run_command("eval", "golden.jsonl", "--modes", "single", "--run", "nightly")
    assert (completed.returncode, completed.stdout) == (BAD_INPUT, "")
    assert "choose a new name" in completed.stderr


@pytest.mark.slow
def test_an_interrupted_run_loses_no_job_and_continues_under_its_name(
    system: EvaluatedSystem,
) -> None:
    system.write_cases(RIGHT, {"id": "slow", "request": "slow: what is it?"}, WRONG)
    command = (
        "eval",
        "golden.jsonl",
        "--modes",
        "single",
        "--at-once",
        "1",
        "--no-grader",
        "--run",
        "cut-short",
    )
    with system.handoff.started(*command, **system.environment) as process:
        system.handoff.wait_for_text("1/3  right")
        wait_until(
            lambda: system.model.calls["work"] == 2,
            timeout_s=30,
            expected="the call of the slow case",
        )
        assert interrupt(process) == 130
    assert "the same command with --run cut-short continues here" in system.handoff.read("err")
    system.model.release.set()
    report = system.run(*command)

    assert [trial["case"] for trial in report["trials"]] == ["right", "slow", "wrong"]
    assert system.model.calls["work"] == 3


@pytest.mark.slow
def test_an_evaluation_never_exceeds_its_budget_and_names_the_unmeasured_cases(
    system: EvaluatedSystem,
) -> None:
    system.write_cases(*({**RIGHT, "id": f"right{n}"} for n in range(6)))
    report = system.run(
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

    assert report["cost_usd"] <= 0.02
    assert (
        "with a higher --max-usd" in report["stderr"]
        or "the budget has no room" in report["stderr"]
    )


@pytest.mark.slow
def test_a_grader_that_sees_both_orders_chooses_the_better_answer(system: EvaluatedSystem) -> None:
    report = system.run("compare", "right: what is it?")

    assert (report["better"], [duel["better"] for duel in report["duels"]]) == (
        "second",
        ["second", "first"],
    )
    assert (report["first"]["score"], report["second"]["score"]) == (3.0, 5.0)
    assert report["advice"].startswith("Take team: its answer was found better in both orders, at ")
    assert [
        (SINGLE in brief, brief.index(TEAM) < brief.index(SINGLE)) for brief in system.model.briefs
    ] in (
        [(True, False), (True, True)],
        [(True, True), (True, False)],
    )
    assert all(DUEL_JOB in brief for brief in system.model.briefs)
    assert report["second"]["took"]["own_s"] > 0


@pytest.mark.slow
def test_a_grader_that_prefers_a_position_makes_a_draw(system: EvaluatedSystem) -> None:
    system.model.grader = "first"
    report = system.run("compare", "right: what is it?")

    assert report["better"] == "neither"
    assert report["advice"].startswith(
        "Take single: no difference was found that holds in both orders"
    )


@pytest.mark.slow
def test_gates_check_both_answers_and_neither_mode_sees_them(system: EvaluatedSystem) -> None:
    (system.handoff.folder / "gates.yaml").write_text("required: [team]\n")
    report = system.run("compare", "right: what is it?", "--gates", "gates.yaml", "--no-grader")

    assert (report["first"]["faults"], report["second"]["faults"]) == (
        ["It says nothing that fits 'team'."],
        [],
    )
    assert report["advice"].startswith(
        "Take team: its answer passes, and the answer of single does not"
    )
    assert system.model.calls["work"] == 2


@pytest.mark.slow
def test_a_second_comparison_with_the_same_name_repeats_no_work(system: EvaluatedSystem) -> None:
    first = system.run("compare", "right: what is it?", "--run", "twice")
    calls = system.model.calls.copy()
    second = system.run("compare", "right: what is it?", "--run", "twice")

    assert {name: value for name, value in second.items() if name != "stderr"} == {
        k: v for k, v in first.items() if k != "stderr"
    }
    assert system.model.calls == calls
    completed = system.run_command("compare", "another: what is it?", "--run", "twice")
    assert (completed.returncode, completed.stdout) == (BAD_INPUT, "")
    assert "choose a new name" in completed.stderr


@pytest.mark.slow
def test_an_interrupted_comparison_continues_under_its_name(system: EvaluatedSystem) -> None:
    command = ("compare", "slow: what is it?", "--no-grader", "--run", "broken-off")
    with system.handoff.started(*command, **system.environment) as process:
        wait_until(
            lambda: system.model.calls["work"] >= 1,
            timeout_s=30,
            expected="the call of a slow case",
        )
        assert interrupt(process) == 130
    assert "the same command with --run broken-off continues here" in system.handoff.read("err")
    system.model.release.set()
    report = system.run(*command)

    assert report["second"]["faults"] == []
    assert system.model.calls["work"] == 2, "each mode has done its work once"


@pytest.mark.slow
def test_eval_and_compare_print_a_table_without_the_json_option(system: EvaluatedSystem) -> None:
    system.write_cases(RIGHT)
    completed = system.run_command("eval", "golden.jsonl", "--modes", "single")
    compared = system.run_command("compare", "right: what is it?")

    assert "| single | 1 of 1 | 100% (21% to 100%)" in completed.stdout
    assert "| sequential time" in compared.stdout
    assert compared.stdout.rstrip().splitlines()[-1].startswith("Take team")


@pytest.mark.slow
def test_without_a_broker_an_interrupted_run_keeps_its_work_and_does_not_repeat_it(
    tmp_path: Path,
) -> None:
    handoff = Handoff(tmp_path)
    golden = ROOT / "examples" / "golden.jsonl"
    with golden.open() as examples:
        cases = [json.loads(line) for line in islice(examples, CASES_AT_HOME)]
    for docs in {case["docs"] for case in cases}:
        shutil.copytree(golden.parent / docs, tmp_path / docs)
    (tmp_path / "golden.jsonl").write_text("\n".join(map(json.dumps, cases)))
    options = ("--modes", "team", "--no-grader", "--at-once", "1", "--run", "at-home")
    command = ("eval", "golden.jsonl", *options)
    with handoff.started(*command) as process:
        handoff.wait_for_text(f"2/{CASES_AT_HOME}  ")
        assert interrupt(process) == 130
    before = dict(re.findall(rf"\d+/{CASES_AT_HOME}  ([\w-]+  \w+)  (j-\w+)", handoff.read("err")))
    completed = handoff.run(*command, "--json")

    assert completed.returncode == 0, completed.stderr
    after = {
        f"{trial['case']}  {trial['mode']}": trial
        for trial in json.loads(completed.stdout)["trials"]
    }
    assert (len(after), len(before) >= 2) == (CASES_AT_HOME, True)
    assert {name: after[name]["job_id"] for name in before} == before
    assert handoff.remaining_processes() == []
    assert list((tmp_path / "cache" / "interrupted").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("eval", "nope.jsonl"), "'nope.jsonl' cannot be read"),
        (("eval", "bad.jsonl"), "bad.jsonl:1: id: is missing"),
        (("eval", "good.jsonl", "--modes", "teem"), "'teem' is not a mode: did you mean team?"),
        (("eval", "good.jsonl", "--modes", "single,,team"), "has an empty name"),
        (("eval", "good.jsonl", "--modes", "single,single"), "names a value twice"),
        (
            ("eval", "good.jsonl", "--modes", "pipeline", "--workflow", "nope"),
            "there is no workflow 'nope'",
        ),
        (("eval", "good.jsonl", "--workflow", "brief"), "--workflow is for the mode pipeline"),
        (("eval", "good.jsonl", "--run", "A B"), "is not a name"),
        (("eval", "good.jsonl", "--repeat", "0"), "--repeat"),
        (("eval", "good.jsonl", "--min-pass-rate", "2"), "--min-pass-rate"),
        (("eval", "good.jsonl", "--models", "some-model"), "some-model needs a key"),
        (("eval", "docs.jsonl"), f"{RIGHT['id']}: no such folder of documents: nowhere"),
        (
            ("eval", "good.jsonl", "--no-grader", "--min-score", "3"),
            "--min-score needs a grader",
        ),
        (("eval", "good.jsonl", "--no-grader", "--grader-model", "m"), "leave one out"),
        (("compare", ""), "the request is empty"),
        (
            ("compare", "What?", "--modes", "single,team,auto"),
            "names 3 modes, and compare needs two",
        ),
        (("compare", "What?", "--rubric", "nope.yaml"), "nope.yaml"),
        (("compare", "j-0123456789ab"), "compare needs two jobs: name a second one after j-01"),
        (("compare", "j-0123"), "compare needs two jobs: name a second one after j-0123"),
        (("compare", " j-0123456789ab"), "the request is the id of a job, j-0123456789ab"),
        (("run", "j-0123456789ab"), "`handoff show j-0123456789ab` shows the job"),
        (("compare", "What?", "--docs", "nowhere"), "nowhere"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line_before_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    (tmp_path / "good.jsonl").write_text(json.dumps({**RIGHT, "gates": GATES}))
    (tmp_path / "docs.jsonl").write_text(json.dumps({**RIGHT, "docs": "nowhere"}))
    (tmp_path / "bad.jsonl").write_text('{"request": "What?"}')

    completed = HandoffInProcess(tmp_path, capture=capfd).run(*arguments)

    assert text in error_line(completed, BAD_INPUT)


@pytest.mark.parametrize(
    "option",
    [
        *("--modes team,single", "--docs nowhere", "--model m", "--max-usd 1", "--timeout 10m"),
        *("--gates g.yaml", "--rubric r.yaml", "--grader-model m", "--no-grader", "--run again"),
        "--workflow brief",
    ],
)
def test_two_jobs_are_compared_with_no_option_of_a_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    arguments = ("compare", "j-0123456789ab", "j-abcdef012345", "--json", *option.split())

    completed = HandoffInProcess(tmp_path, capture=capfd).run(*arguments)

    name, *_ = option.split()
    assert f"{name} is for a comparison of one request" in error_line(completed, BAD_INPUT)
