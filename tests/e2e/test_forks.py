"""A fork runs a part of an ended job again, and pays for nothing else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import Conflict, UserError
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.forks import ForkOptions
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.evaluation.golden_set import read_golden
from handoff_queue.supervisor.workflows import Items
from handoff_queue.supervisor.workflows.parser import parse_workflow
from tests.e2e.commands import BAD_INPUT, Handoff, error_line
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow

SPECIALIST = """\
---
name: generalist
description: Does any work that no other specialist does.
tools: []
---
## Objective
Answer like a pirate.
"""
WORKFLOW_WITH_ITEMS = """
description: One step for each line
review: false
steps:
  - id: a
    specialist: generalist
    for_each: lines
    task: "Do a of golden-items: {item}"
"""


def finished_job(fleet: Fleet, name: str) -> JobId:
    """Return an ended job with the steps a, b and d, which depends on both."""
    job_id = fleet.submit(name, a="", b="", d="a b")
    fleet.wait_for_success(job_id)
    return job_id


def steps_issued(fleet: Fleet, job_id: JobId) -> Counter[str]:
    issued: Counter[str] = Counter()
    for recorded in fleet.jobs.events(job_id, follow=False):
        if isinstance(recorded.event, HandoffIssued):
            issued[recorded.event.step_id] += 1
    return issued


def last_request(fleet: Fleet, task: str) -> str:
    """Return the last request to the model with this task, as JSON."""
    texts = [json.dumps(request) for request in fleet.server.requests]
    return [text for text in texts if task in text][-1]


def test_a_fork_runs_only_the_step_and_its_dependents(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "forked")

    fork = fleet.jobs.fork(job_id, "b")
    result = fleet.wait_for_success(fork)

    assert set(steps_issued(fleet, fork)) == {"b", "d", "assessor"}
    assert result.plan is not None
    assert [step["id"] for step in result.plan["steps"]] == ["a", "b", "d"]
    assert result.forked_from == job_id


def test_a_repeated_step_of_a_fork_reads_the_kept_results(fleet: Fleet) -> None:
    fleet.model.envelopes["reads", "a"] = {**ENVELOPE, "output": "The bridge is 300 m long."}
    job_id = finished_job(fleet, "reads")

    result = fleet.wait_for_success(fleet.jobs.fork(job_id, "d"))

    (handoff,) = [handoff for handoff in result.handoffs if handoff["step_id"] == "d"]
    assert {item["step_id"] for item in handoff["context"]} == {"a", "b"}
    assert "The bridge is 300 m long." in last_request(fleet, "Do d of reads.</task>")


def test_a_fork_starts_with_nothing_spent(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "cheaper")
    spent = fleet.jobs.result(job_id).usage["turns"]

    result = fleet.wait_for_success(fleet.jobs.fork(job_id, "d"))

    assert result.usage["turns"] == 2, "the step d and the assessor"
    assert fleet.jobs.result(job_id).usage["turns"] == spent


def test_a_fork_may_have_another_task(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "forked-changed")

    fork = fleet.jobs.fork(job_id, "d", ForkOptions(task="In one line: Do d of changed."))
    result = fleet.wait_for_success(fork)

    (handoff,) = [handoff for handoff in result.handoffs if handoff["step_id"] == "d"]
    assert handoff["task_description"] == "In one line: Do d of changed."


def test_a_fork_may_have_another_model(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "modelled")

    fork = fleet.jobs.fork(job_id, "d", ForkOptions(model="claude-sonnet-5-5"))
    fleet.wait_for_success(fork)

    assert (
        json.loads(last_request(fleet, "Do d of modelled.</task>"))["model"] == "claude-sonnet-5-5"
    )


def test_a_fork_uses_the_instructions_of_its_own_specialist_file(
    fleet: Fleet, tmp_path: Path
) -> None:
    job_id = finished_job(fleet, "pirate")
    (tmp_path / "generalist.md").write_text(SPECIALIST)

    fork = fleet.jobs.fork(job_id, "d", ForkOptions(specialists=tmp_path))
    fleet.wait_for_success(fork)

    assert "Answer like a pirate." in last_request(fleet, "Do d of pirate.</task>")


def test_a_fork_that_is_sent_again_with_its_key_is_one_job(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "sent-twice")

    first, second = [fleet.jobs.fork(job_id, "d", key="again") for _ in range(2)]

    assert first == second
    assert fleet.wait_for_success(first).forked_from == job_id
    with pytest.raises(Conflict, match="the idempotency key was used for another request"):
        fleet.jobs.fork(job_id, "b", key="again")


def test_a_fork_of_a_fork_keeps_the_results_of_both(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "forked-twice")
    first = fleet.jobs.fork(job_id, "b")
    fleet.wait_for_success(first)

    second = fleet.jobs.fork(first, "d")
    fleet.wait_for_success(second)

    assert set(steps_issued(fleet, second)) == {"d", "assessor"}


def test_a_fork_of_a_fork_keeps_its_specialist_files(
    fleet: Fleet, handoff: Handoff, tmp_path: Path
) -> None:
    job_id = finished_job(fleet, "still-pirate")
    (tmp_path / "generalist.md").write_text(SPECIALIST)
    first = fleet.jobs.fork(job_id, "d", ForkOptions(specialists=tmp_path))
    fleet.wait_for_success(first)
    (tmp_path / "generalist.md").unlink()

    completed = handoff.run("fork", first, "--from", "d", HANDOFF_REDIS_URL=fleet.system.redis_url)
    second = JobId(completed.stdout.strip())
    fleet.wait_for_success(second)

    assert f"handoff: kept from {first}: the files of generalist" in completed.stderr
    assert "Answer like a pirate." in last_request(fleet, "Do d of still-pirate.</task>")


def test_new_specialist_files_replace_those_of_the_first_fork(fleet: Fleet, tmp_path: Path) -> None:
    job_id = finished_job(fleet, "no-pirate")
    (tmp_path / "generalist.md").write_text(SPECIALIST)
    first = fleet.jobs.fork(job_id, "d", ForkOptions(specialists=tmp_path))
    fleet.wait_for_success(first)
    (tmp_path / "generalist.md").write_text(SPECIALIST.replace("pirate", "poet"))

    second = fleet.jobs.fork(first, "d", ForkOptions(specialists=tmp_path))
    fleet.wait_for_success(second)

    assert "Answer like a poet." in last_request(fleet, "Do d of no-pirate.</task>")


def test_a_running_job_is_not_forked(fleet: Fleet) -> None:
    held = fleet.model.hold("busy", "a")
    job_id = fleet.submit("busy", a="")
    assert held.arrived.wait(MAX_WAIT_S)

    with pytest.raises(UserError, match=f"{job_id} has not ended yet"):
        fleet.jobs.fork(job_id, "a")
    held.release.set()
    fleet.wait_for_success(job_id)


def test_an_unknown_step_is_refused_with_the_names_of_the_steps(fleet: Fleet) -> None:
    job_id = finished_job(fleet, "unknown-step")

    with pytest.raises(UserError, match="has no step x: its steps are a, b, d"):
        fleet.jobs.fork(job_id, "x")


def test_specialists_that_do_no_repeated_step_are_refused(fleet: Fleet, tmp_path: Path) -> None:
    job_id = finished_job(fleet, "other-file")
    (tmp_path / "poet.md").write_text(SPECIALIST.replace("name: generalist", "name: poet"))

    with pytest.raises(UserError, match="no step that runs again uses poet"):
        fleet.jobs.fork(job_id, "d", ForkOptions(specialists=tmp_path))


def run(fleet: Fleet, handoff: Handoff, *arguments: str, exit_code: int = 0) -> str:
    """Run a command on the fleet. Return its output, or its error line."""
    completed = handoff.run(*arguments, HANDOFF_REDIS_URL=fleet.system.redis_url)
    if exit_code:
        return error_line(completed, exit_code)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_show_and_compare_name_the_job_of_a_kept_step(fleet: Fleet, handoff: Handoff) -> None:
    job_id = finished_job(fleet, "shown")
    command = ("fork", job_id, "--from", "d", "--idempotency-key", "shown")
    fork = run(fleet, handoff, *command).strip()
    assert run(fleet, handoff, *command).strip() == fork
    fleet.wait_for_success(JobId(fork))

    shown = run(fleet, handoff, "show", fork)
    compared = run(fleet, handoff, "compare", job_id, fork)

    assert f"forked from {job_id}" in shown
    assert f"kept from {job_id}" in compared
    assert f"## Answer of {fork}" in compared


def test_compare_does_not_call_a_step_kept_that_did_not_run(fleet: Fleet, handoff: Handoff) -> None:
    job_id = fleet.submit("unrun", a="", b="", d="b")
    fleet.wait_for_success(job_id)
    failed = {**ENVELOPE, "status": "failed", "output": "", "claims": [], "problem": "no data"}
    fleet.model.envelopes["unrun", "b"] = failed
    fork = fleet.jobs.fork(job_id, "b")
    fleet.jobs.result(fork, wait_s=MAX_WAIT_S)

    compared = run(fleet, handoff, "compare", job_id, fork)
    second = json.loads(run(fleet, handoff, "compare", job_id, fork, "--json"))["second"]

    rows = {line[:4]: line for line in compared.splitlines()}
    assert f"kept from {job_id}" in rows["| a "]
    assert "did not run" in rows["| d "]
    assert (second["kept"], second["steps"]["d"]) == (["a"], None)


def test_a_fork_names_the_fields_that_it_does_not_take_from_a_specialist_file(
    fleet: Fleet, handoff: Handoff, tmp_path: Path
) -> None:
    job_id = finished_job(fleet, "not-taken")
    fields = "tools: [memory]\nmodel: claude-opus-5-5\neffort: high"
    (tmp_path / "generalist.md").write_text(SPECIALIST.replace("tools: []", fields))

    completed = handoff.run(
        *("fork", job_id, "--from", "d", "--specialists", str(tmp_path)),
        HANDOFF_REDIS_URL=fleet.system.redis_url,
    )

    assert completed.stderr == (
        "handoff: not taken from the file of generalist: model, tools, effort\n"
    )
    fleet.wait_for_success(JobId(completed.stdout.strip()))


def test_a_job_becomes_a_case_of_a_golden_set(fleet: Fleet, handoff: Handoff) -> None:
    job_id = fleet.submit("golden", a="")
    result = fleet.wait_for_success(job_id)

    run(fleet, handoff, "golden", "add", job_id, "--id", "bridge")

    (case,) = read_golden(handoff.folder / "golden.jsonl")
    assert (case.id, case.request, case.reference) == ("bridge", "plan golden", result.answer)


def test_the_case_of_a_fork_asks_for_the_changed_task(fleet: Fleet, handoff: Handoff) -> None:
    task = "In one line: Do d of golden-fork."
    job_id = finished_job(fleet, "golden-fork")
    fork = fleet.jobs.fork(job_id, "d", ForkOptions(task=task))
    fleet.wait_for_success(fork)
    second = fleet.jobs.fork(fork, "d")
    fleet.wait_for_success(second)

    run(fleet, handoff, "golden", "add", fork, "--id", "changed")
    run(fleet, handoff, "golden", "add", second, "--id", "changed-before")

    for case in read_golden(handoff.folder / "golden.jsonl"):
        assert case.request == f"plan golden-fork\n\n{task}"


def test_the_case_of_a_fork_of_one_step_has_the_changed_task_alone(
    fleet: Fleet, handoff: Handoff
) -> None:
    job_id = fleet.submit("golden-one", a="")
    fleet.wait_for_success(job_id)
    fork = fleet.jobs.fork(job_id, "a", ForkOptions(task="In one line: Do a of golden-one."))
    fleet.wait_for_success(fork)

    run(fleet, handoff, "golden", "add", fork)

    (case,) = read_golden(handoff.folder / "golden.jsonl")
    assert case.request == "In one line: Do a of golden-one."


def test_a_job_with_items_is_not_a_case(fleet: Fleet, handoff: Handoff) -> None:
    workflow = parse_workflow(WORKFLOW_WITH_ITEMS)
    items = Items(lines=("alpha", "beta"))
    job_id = fleet.jobs.submit(Request("golden items", workflow=workflow, items=items))
    fleet.wait_for_success(job_id)

    line = run(fleet, handoff, "golden", "add", job_id, exit_code=BAD_INPUT)

    assert f"{job_id} repeats a step for items, and a case has no items" in line


def test_a_job_that_continues_another_job_is_not_a_case(fleet: Fleet, handoff: Handoff) -> None:
    first = fleet.submit("golden-first", a="")
    fleet.wait_for_success(first)
    later = fleet.jobs.submit(Request("plan golden-first", after=first))
    fleet.jobs.result(later, wait_s=MAX_WAIT_S)

    line = run(fleet, handoff, "golden", "add", later, exit_code=BAD_INPUT)

    assert f"{later} continues {first}, and a case has no earlier results" in line


def test_the_reference_of_a_case_has_no_lines_of_our_code(fleet: Fleet, handoff: Handoff) -> None:
    output = "The bridge is 300 m long [c1]."
    claim = {"id": "c1", "text": "The bridge is 300 m long.", "sources": []}
    failed = {**ENVELOPE, "status": "failed", "output": "", "claims": [], "problem": "no data"}
    fleet.model.envelopes["golden-gap", "a"] = {**ENVELOPE, "output": output, "claims": [claim]}
    fleet.model.envelopes["golden-gap", "b"] = failed
    job_id = fleet.submit("golden-gap", a="", b="")
    answer = str(fleet.jobs.result(job_id, wait_s=MAX_WAIT_S).answer)

    run(fleet, handoff, "golden", "add", job_id)

    assert "**Missing or incomplete:**" in answer
    assert "[no source]" in answer
    (case,) = read_golden(handoff.folder / "golden.jsonl")
    assert case.reference == "The bridge is 300 m long."


def test_a_job_with_a_request_that_is_too_long_for_a_golden_set_is_not_a_case(
    fleet: Fleet, handoff: Handoff
) -> None:
    job_id = fleet.submit("x" * 50_000, a="")
    fleet.wait_for_success(job_id)

    line = run(fleet, handoff, "golden", "add", job_id, exit_code=BAD_INPUT)

    assert f"{job_id} cannot be a case: request:" in line
    line = run(fleet, handoff, "golden", "add", job_id, "--id", "a b", exit_code=BAD_INPUT)
    assert "cannot be a case: id (--id): must be lower-case letters" in line
    assert "not 'a b'" in line
    assert not (handoff.folder / "golden.jsonl").exists()


def test_a_golden_set_takes_no_second_case_with_the_same_id(fleet: Fleet, handoff: Handoff) -> None:
    job_id = fleet.submit("golden-twice", a="")
    fleet.wait_for_success(job_id)
    run(fleet, handoff, "golden", "add", job_id)
    before = (handoff.folder / "golden.jsonl").read_text()

    line = run(fleet, handoff, "golden", "add", job_id, exit_code=BAD_INPUT)

    assert f"has a case {job_id} already: choose another --id" in line
    assert (handoff.folder / "golden.jsonl").read_text() == before
