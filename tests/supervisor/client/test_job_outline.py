"""Reading a job with many handoffs is correct and bounded. The tests count commands and bytes
of Redis, which do not depend on other load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import (
    EndTaskTried,
    Event,
    JobStatus,
    RetryRequested,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.cli.show import show
from handoff_queue.supervisor.client.job_outline import (
    MAX_NAMED,
    MAX_NEWEST,
    build_outline,
)
from handoff_queue.supervisor.client.job_result import read_handoffs
from handoff_queue.supervisor.lifecycle.plan_summary import FEW_STEPS
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.shell import Shell, running_shell

FEW, MANY = 150, 600


@pytest.fixture
def shell(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    with running_shell(redis_url, "researcher") as supervisor:
        yield supervisor


def ended_job(shell: Shell, tmp_path: Path, count: int) -> JobId:
    """Return an ended job with this number of steps, all finished."""
    job_id = submit_rows(shell, tmp_path, count)
    for event in shell.open(job_id):
        shell.do(job_id, event)
    while not shell.jobs.info(job_id).status.has_ended:
        shell.advance(job_id)
    return job_id


def finish_most(shell: Shell, job_id: JobId) -> None:
    """Finish most steps, fail three steps, and leave two steps running."""
    waiting = shell.open(job_id)
    for place, event in enumerate(waiting[:-10]):
        shell.do(job_id, event, ResultStatus.FAILED if place in (1, 50, 100) else ResultStatus.OK)
    for event in waiting[-10:-8]:
        shell.claim(job_id, event)


def redis_cost_of(shell: Shell, ask: Callable[[], object]) -> tuple[int, int, int]:
    """Return the commands, received bytes and sent bytes of Redis that a call causes. It is the
    least of three calls, because another test of this process may just close its connections.
    """
    return min(_cost_of_one(shell, ask) for _ in range(3))


def _cost_of_one(shell: Shell, ask: Callable[[], object]) -> tuple[int, int, int]:
    ask()  # opens the connections and loads the scripts
    redis, deltas = shell.store.connection.redis, []
    for call in (lambda: None, ask):
        before = redis.info("stats")
        call()
        after = redis.info("stats")
        names = ("total_commands_processed", "total_net_input_bytes", "total_net_output_bytes")
        deltas.append([after[name] - before[name] for name in names])
    baseline, total = deltas
    commands, bytes_in, bytes_out = (
        had - without for had, without in zip(total, baseline, strict=True)
    )
    return commands, bytes_in, bytes_out


@pytest.mark.slow
def test_the_amount_of_data_read_does_not_grow_with_the_number_of_steps(
    shell: Shell, tmp_path: Path
) -> None:
    few, many = (submit_rows(shell, tmp_path, count) for count in (FEW, MANY))
    for job_id in (few, many):
        finish_most(shell, job_id)

    costs = [
        redis_cost_of(shell, partial(build_outline, shell.store, job_id)) for job_id in (few, many)
    ]

    assert costs[1][0] <= costs[0][0]
    assert costs[1][1] <= 1.05 * costs[0][1]
    assert costs[1][2] <= 1.05 * costs[0][2]


@pytest.mark.slow
def test_a_handoff_read_alone_equals_its_part_of_the_whole(shell: Shell, tmp_path: Path) -> None:
    few, many = (submit_rows(shell, tmp_path, count) for count in (FEW, 2 * FEW))
    for job_id in (few, many):
        finish_most(shell, job_id)
    wanted = [HandoffId("look_0051.1"), HandoffId("look_0003.1")]
    whole = shell.jobs.result(few)

    handoff_details = read_handoffs(shell.store, few, wanted)

    handoffs = {
        handoff["handoff_id"]: handoff for handoff in json.loads(whole.to_json())["handoffs"]
    }
    assert [json.loads(details.to_json())["handoff"] for details in handoff_details] == [
        handoffs[handoff] for handoff in wanted
    ]
    assert [details.result for details in handoff_details] == [
        next(result for result in whole.results if result["handoff_id"] == handoff)
        for handoff in wanted
    ]
    costs = [
        redis_cost_of(shell, partial(read_handoffs, shell.store, job_id, wanted))
        for job_id in (few, many)
    ]
    assert costs[0][0] == costs[1][0]
    assert costs[1][2] <= 1.05 * costs[0][2]


@pytest.mark.slow
def test_the_counts_of_the_outline_match_the_handoffs(shell: Shell, tmp_path: Path) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    finish_most(shell, job_id)

    outline = build_outline(shell.store, job_id)

    assert outline.counts == {
        "issued": FEW, "ok": FEW - 13, "partial": 0, "needs_input": 0,
        "failed": 3, "dropped": 0, "open": 10,
    }  # fmt: skip
    assert outline.at_work == {"running": 2, "deferred": 0, "at_least": False}
    assert outline.plan == {
        "steps": FEW,
        "parts": [
            {
                "first": "look_0001",
                "last": f"look_{FEW:04d}",
                "count": FEW,
                "specialist": "researcher",
            }
        ],
        "other_steps": 0,
    }
    assert outline.events == len(shell.events(job_id))
    assert "`handoff" not in str(outline.left_out), "a caller of the HTTP API has no commands"


@pytest.mark.slow
def test_failed_handoffs_are_named_with_task_and_reason_the_newest_first(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    finish_most(shell, job_id)

    outline = build_outline(shell.store, job_id)

    assert [handoff["handoff_id"] for handoff in outline.failed] == [
        "look_0101.1",
        "look_0051.1",
        "look_0002.1",
    ]
    assert {(handoff["state"], handoff["why"]) for handoff in outline.failed} == {
        ("failed", "it broke")
    }
    assert "number 100" in outline.failed[0]["task"]
    assert {handoff["worker"] for handoff in outline.running} == {"worker:1"}
    assert len(outline.newest) == MAX_NEWEST


@pytest.mark.slow
def test_dropped_handoffs_are_counted_and_named(shell: Shell, tmp_path: Path) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    shell.do(job_id, shell.open(job_id)[0])
    shell.jobs.cancel(job_id)
    while not shell.jobs.info(job_id).status.has_ended:
        shell.advance(job_id)

    outline = build_outline(shell.store, job_id)

    assert outline.status is JobStatus.CANCELLED
    assert outline.counts is not None
    assert (outline.counts["ok"], outline.counts["dropped"], outline.counts["open"]) == (
        1,
        FEW - 1,
        0,
    )
    assert len(outline.dropped) == MAX_NAMED
    assert {handoff["state"] for handoff in outline.dropped} == {"dropped"}


@pytest.mark.parametrize(("output", "is_shown"), [("", True), ("A long story. " * 300, False)])
def test_an_answer_is_shown_completely_or_not_at_all(
    shell: Shell, tmp_path: Path, output: str, is_shown: bool
) -> None:
    job_id = submit_rows(shell, tmp_path, 2)
    for event in shell.open(job_id):
        shell.do(job_id, event, output=output)
    while not shell.jobs.info(job_id).status.has_ended:
        shell.advance(job_id)
    answer = shell.jobs.result(job_id).answer

    outline = shell.jobs.outline(job_id)

    assert outline.answer == (answer if is_shown else None)
    assert any(line.startswith("the answer, of") for line in outline.left_out) is not is_shown


def test_a_missing_specialist_is_named_with_some_waiting_steps_and_the_number_of_the_rest(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    shell.leave()

    notes = build_outline(shell.store, job_id).notes

    waits = next(note for note in notes if "a worker of `researcher`" in note)
    assert f"look_0004, look_0005 and {FEW - 5} more wait" in waits


def test_the_newest_failed_try_to_report_the_end_is_a_note_until_a_retry_of_the_job(
    shell: Shell,
) -> None:
    job_id = shell.submit()
    note = "the task at the end was not sent: try 2 of 6: the broker is away"
    failed_try = EndTaskTried(attempt=2, delivered=False, detail="the broker is away", end=2)
    later_events: tuple[tuple[Event, bool], ...] = (
        (failed_try, True),
        (WebhookTried(attempt=1, delivered=True, end=2), True),
        (failed_try.model_copy(update={"attempt": 3, "under_way": True}), True),
        (RetryRequested(), False),
        (failed_try, True),
        (failed_try.model_copy(update={"delivered": True}), False),
    )

    for event, is_noted in later_events:
        shell.store.journal.append(job_id, event)
        assert (note in build_outline(shell.store, job_id).notes) is is_noted


@pytest.mark.parametrize(
    "name", ["look_9999.1", "look", "", "*", "look_0001.1:x", "\udcff", "x" * 500]
)
def test_a_missing_handoff_is_refused_in_one_line(shell: Shell, name: str) -> None:
    job_id = shell.submit()

    with pytest.raises(UserError, match=f"{job_id} has no handoff") as refused:
        show(job_id, handoff=[name])

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("name", ["j-000000000000", "nonsense"])
def test_a_missing_job_has_no_outline_and_no_handoffs(shell: Shell, name: str) -> None:
    for ask in (shell.jobs.outline, lambda job_id: shell.jobs.handoffs(job_id, [HandoffId("a.1")])):
        with pytest.raises(UnknownJob):
            ask(JobId(name))


def test_two_output_forms_together_are_refused(shell: Shell) -> None:
    with pytest.raises(UserError, match="exclude each other"):
        show(shell.submit(), full=True, handoff=["a.1"])


def test_a_job_of_two_handoffs_is_shown_in_brief(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = ended_job(shell, tmp_path, 2)

    show(job_id)

    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 40
    assert f"=== {job_id}  ok" in shown
    assert "look_0001.1  researcher  ok" in shown
    assert "=== answer" in shown
    assert f"`handoff show {job_id} --full`" in shown


def test_full_shows_every_handoff_and_every_result(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = ended_job(shell, tmp_path, FEW_STEPS + 1)

    show(job_id, full=True)

    shown = capsys.readouterr().out
    assert shown.count("=== result of look_") == FEW_STEPS + 1
    assert "=== plan" in shown


@pytest.mark.slow
def test_one_of_many_handoffs_is_shown_by_its_important_facts(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = submit_rows(shell, tmp_path, FEW)
    finish_most(shell, job_id)

    show(job_id)
    output = capsys.readouterr().out
    show(job_id, full=True, as_json=True)
    whole = json.loads(capsys.readouterr().out)
    show(job_id, as_json=True)
    brief = json.loads(capsys.readouterr().out)
    show(job_id, handoff=["look_0002.1"])
    text = capsys.readouterr().out

    assert len(output.splitlines()) < 150
    assert f"{FEW} issued: {FEW - 13} ok, 3 failed, 10 open" in output
    assert f"look_0001 to look_{FEW:04d}: {FEW} steps of researcher" in output
    assert f"`handoff show {job_id} --full`" in output
    assert len(whole["handoffs"]) == FEW
    assert "handoffs" not in brief
    assert brief["counts"]["issued"] == FEW
    assert any(line.startswith("all handoffs") for line in brief["left_out"])
    assert text.count("=== ") == 2
    assert "it broke" in text
