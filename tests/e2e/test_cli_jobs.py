"""Commands that submit, follow and repair jobs, on a separate broker with supervisors and workers."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import open_store
from handoff_queue.supervisor.client.export import Export
from handoff_queue.supervisor.client.report import report_of
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, said
from tests.running_system import RunningSystem

pytestmark = pytest.mark.slow


def test_run_uses_the_broker_that_is_set(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    listed = json.loads(handoff.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout)

    assert [one["status"] for one in listed if one["job_id"] == job_id] == ["ok"]


def test_submit_prints_the_id_at_once_and_watch_prints_the_answer(
    handoff: Handoff, system: RunningSystem
) -> None:
    submitted = handoff.run(
        "submit",
        "-",
        "--docs",
        str(DOCUMENTS),
        stdin="What is HNSW?",
        HANDOFF_REDIS_URL=system.redis_url,
    )
    watched = handoff.run("watch", submitted.stdout.strip(), HANDOFF_REDIS_URL=system.redis_url)

    assert (submitted.returncode, watched.returncode) == (0, 0), watched.stderr
    assert "HNSW" in watched.stdout
    assert "Sources:" in watched.stdout


def test_the_same_key_gives_the_same_job(handoff: Handoff, system: RunningSystem) -> None:
    again = [
        handoff.run(
            "submit", "What is IVF?", "--idempotency-key", "k1", HANDOFF_REDIS_URL=system.redis_url
        ).stdout
        for _ in range(2)
    ]
    other = handoff.run(
        "submit", "Another request", "--idempotency-key", "k1", HANDOFF_REDIS_URL=system.redis_url
    )

    assert again[0] == again[1]
    assert (other.returncode, "take a new key" in other.stderr) == (2, True)


def test_a_file_of_jobs_gives_an_id_a_line(handoff: Handoff, system: RunningSystem) -> None:
    (handoff.folder / "jobs.jsonl").write_text(
        "".join(
            json.dumps({"request": f"What is {what}?", "docs": str(DOCUMENTS), "max_turns": 4})
            + "\n"
            for what in ("HNSW", "IVF")
        )
    )

    submitted = handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=system.redis_url)
    ids = submitted.stdout.split()
    results = [
        handoff.run("result", one, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url)
        for one in ids
    ]

    assert [json.loads(one.stdout)["status"] for one in results] == ["ok", "ok"]
    assert {
        one["limits"]["max_turns"]
        for one in json.loads(results[0].stdout)["handoffs"]
        if one["assigned_to"] == "researcher"
    } == {4}


def test_result_prints_the_answer_again(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    done = handoff.run("result", job_id, HANDOFF_REDIS_URL=system.redis_url)

    assert done.returncode == 0
    assert "Sources:\n[1] " in done.stdout


def test_show_gives_every_handoff_and_result_in_full(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    shown = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=system.redis_url).stdout
    whole = json.loads(
        handoff.run("show", job_id, "--full", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
    )

    for one in whole["handoffs"]:
        assert f"=== handoff {one['handoff_id']} to {one['assigned_to']}" in shown
        assert f"=== result of {one['handoff_id']}" in shown
        assert one["task_description"].splitlines()[0] in shown
    assert "expected_output_format:" in shown


def test_json_output_sends_no_control_sequence_to_a_terminal(
    handoff: Handoff, system: RunningSystem
) -> None:
    """A request may hold it, as a document may, and a model."""
    request = "What is \x9b31m HNSW\u202e?"
    job_id = handoff.run(
        "submit", "-", stdin=request, HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    whole = handoff.run(
        "result", job_id, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url
    )
    commands = (
        ["list", "--json"],
        ["show", job_id, "--json"],
        ["show", job_id, "--full", "--json"],
        ["export", job_id],
    )
    written = [
        whole.stdout,
        *(handoff.run(*command, HANDOFF_REDIS_URL=system.redis_url).stdout for command in commands),
    ]

    assert not [text for text in written if {"\x9b", "\u202e"} & set(text)]
    assert all("\\u009b" in text for text in written)


def test_the_output_of_show_can_be_rebuilt_from_an_exported_file(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    done = handoff.run("export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url)
    whole = json.loads(
        handoff.run("show", job_id, "--full", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
    )

    assert (done.returncode, done.stdout) == (0, "")
    file = Export.from_json((handoff.folder / "job.json").read_text())
    assert json.loads(report_of(file.record()).to_json()) == whole


@pytest.mark.parametrize("name", ["job.json", "an export"])
def test_a_job_is_written_as_a_page_which_its_exported_file_gives_too(
    handoff: Handoff, system: RunningSystem, job_id: str, name: str
) -> None:
    handoff.run("export", job_id, "--output", name, HANDOFF_REDIS_URL=system.redis_url)
    of_the_job = handoff.run("trace", job_id, HANDOFF_REDIS_URL=system.redis_url)
    of_the_file = handoff.run("trace", name, "-o", "-")

    assert (of_the_job.returncode, of_the_job.stdout) == (0, "")
    for page in ((handoff.folder / f"{job_id}.html").read_text(), of_the_file.stdout):
        assert f"<title>{job_id} " in page
        assert '"handoff_id":"planner.1"' in page


def test_child_jobs_that_an_exported_file_does_not_hold_are_named(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    handoff.run("export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url)
    whole = json.loads((handoff.folder / "job.json").read_text())
    steps = [one["event"] for one in whole["journal"] if one["event"].get("group")]
    for number, event in enumerate(steps):
        event["child"] = {
            "job_id": f"j-{number:012}",
            "limits": whole["journal"][0]["event"]["limits"],
        }
    (handoff.folder / "team.json").write_text(json.dumps(whole))
    done = handoff.run("trace", "team.json")

    assert done.returncode == 0, done.stderr
    assert (
        f"not in the page: {len(steps)} child jobs, j-000000000000, j-000000000001" in done.stderr
    )


def test_a_tampered_export_writes_nowhere_else_and_names_its_fault(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    handoff.run("export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url)
    whole = json.loads((handoff.folder / "job.json").read_text())
    (handoff.folder / "named.json").write_text(
        json.dumps(whole | {"job": whole["job"] | {"job_id": "../elsewhere"}})
    )
    (handoff.folder / "cut.json").write_text(json.dumps(whole | {"payloads": {}}))

    assert "handoff export" in said(handoff.run("trace", "named.json"), BAD_INPUT)
    assert "is incomplete" in said(handoff.run("trace", "cut.json"), BAD_INPUT)
    assert not (handoff.folder.parent / "elsewhere.html").exists()


def test_an_ended_job_is_done_again_from_a_step(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    wrong = handoff.run("retry", job_id, "--from", "nonsense", HANDOFF_REDIS_URL=system.redis_url)
    right = handoff.run("retry", job_id, "--from", "write", HANDOFF_REDIS_URL=system.redis_url)
    outcome = handoff.run(
        "result", job_id, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url
    )

    assert (wrong.returncode, "its steps are" in wrong.stderr) == (2, True)
    assert right.returncode == 0
    attempts = [
        one["attempt"]
        for one in json.loads(outcome.stdout)["handoffs"]
        if one["step_id"] == "write"
    ]
    assert attempts == [1, 2]


def test_a_cancelled_job_ends_its_commands_with_130(
    handoff: Handoff, system: RunningSystem
) -> None:
    submitted = handoff.run(
        "submit", REQUEST, "--docs", str(DOCUMENTS), HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    cancelled = handoff.run("cancel", submitted, HANDOFF_REDIS_URL=system.redis_url)
    watched = handoff.run("watch", submitted, "--json", HANDOFF_REDIS_URL=system.redis_url)

    assert cancelled.returncode == 0
    if "had ended before" not in cancelled.stderr:
        assert (watched.returncode, json.loads(watched.stdout)["status"]) == (130, "cancelled")


def test_a_deleted_job_is_unknown(handoff: Handoff, system: RunningSystem) -> None:
    job = handoff.run("submit", "What is IVF?", HANDOFF_REDIS_URL=system.redis_url).stdout.strip()
    handoff.run("result", job, "--wait", "30", HANDOFF_REDIS_URL=system.redis_url)

    assert handoff.run("delete", job, HANDOFF_REDIS_URL=system.redis_url).returncode == 0
    assert (
        "there is no job" in handoff.run("result", job, HANDOFF_REDIS_URL=system.redis_url).stderr
    )


def test_specialists_lists_the_served_specialists_and_their_tools(
    handoff: Handoff, system: RunningSystem
) -> None:
    served = {
        one["name"]: one
        for one in json.loads(
            handoff.run("specialists", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
        )
    }

    assert "researcher" in served
    assert "legal" not in served, "nobody serves it here"
    assert "search_documents" in served["researcher"]["tools"]
    assert len(served["researcher"]["workers"]) == 1


def test_doctor_passes_a_healthy_system_and_names_data_at_risk(
    handoff: Handoff, system: RunningSystem
) -> None:
    done = handoff.run("doctor", "--json", HANDOFF_REDIS_URL=system.redis_url)
    found = {one["about"]: one for one in json.loads(done.stdout)}

    assert done.returncode == 0
    assert found["queue supervisor"]["level"] == "ok"
    assert found["queue researcher"]["level"] == "ok"
    assert (found["persistence"]["level"], "appendonly" in found["persistence"]["fix"]) == (
        "warn",
        True,
    )


def test_dead_letters_are_listed_shown_and_dropped(handoff: Handoff, redis_url: str) -> None:
    store = open_store(redis_url, Settings())
    for body in ('{"job_id": 7}', '{"job_id": 8}', '{"job_id": 9}'):
        store.dead_letters.add(
            "researcher", "AgentHandoff: job_id: Input should be a valid string", body
        )

    def dead(*arguments: str) -> str:
        done = handoff.run("dead", *arguments, HANDOFF_REDIS_URL=redis_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    newest, middle, _ = (one["id"] for one in json.loads(dead("--json")))
    assert dead("list", "-n", "1").startswith(f"{newest}  ")
    assert '{"job_id": 8}' in dead("show", middle)
    assert json.loads(dead("show", middle, "--json"))["queue"] == "researcher"
    assert dead("drop", middle) == "1 dead letter dropped\n"
    assert [letter.body for letter in store.dead_letters.newest()] == [
        '{"job_id": 9}',
        '{"job_id": 7}',
    ]
    assert dead("drop", "--all") == "2 dead letters dropped\n"
    assert "no dead letters" in handoff.run("dead", HANDOFF_REDIS_URL=redis_url).stderr
    store.connection.close()


def test_a_queue_without_jobs_says_how_to_make_one(handoff: Handoff, redis_url: str) -> None:
    done = handoff.run("list", HANDOFF_REDIS_URL=redis_url)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == 'handoff: there are no jobs (`handoff submit "..."` makes one)\n'
    assert handoff.run("list", "--json", HANDOFF_REDIS_URL=redis_url).stdout == "[]\n"


def test_doctor_fails_without_workers(handoff: Handoff, redis_url: str) -> None:
    done = handoff.run("doctor", HANDOFF_REDIS_URL=redis_url)

    assert done.returncode == 1
    assert "handoff worker --all" in done.stdout
    assert "handoff supervisor" in done.stdout
