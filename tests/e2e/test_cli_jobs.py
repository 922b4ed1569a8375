"""Commands that submit, follow and repair jobs on a shared system."""

from __future__ import annotations

import json
import math

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import open_store
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_result import build_report
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, REQUEST, Handoff, error_line
from tests.running_system import RunningSystem

pytestmark = pytest.mark.slow


def test_run_uses_the_broker_that_is_set(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    listed = json.loads(handoff.run("list", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout)

    assert [job["status"] for job in listed if job["job_id"] == job_id] == ["ok"]


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


def test_an_idempotency_key_gives_the_same_job_for_the_same_request_only(
    handoff: Handoff, system: RunningSystem
) -> None:
    outputs = [
        handoff.run(
            "submit", "What is IVF?", "--idempotency-key", "k1", HANDOFF_REDIS_URL=system.redis_url
        ).stdout
        for _ in range(2)
    ]
    other = handoff.run(
        "submit", "Another request", "--idempotency-key", "k1", HANDOFF_REDIS_URL=system.redis_url
    )

    assert outputs[0] == outputs[1]
    assert (other.returncode, "use a new key" in other.stderr) == (2, True)


def test_submitting_a_file_of_jobs_prints_an_id_for_each(
    handoff: Handoff, system: RunningSystem
) -> None:
    (handoff.folder / "jobs.jsonl").write_text(
        "".join(
            json.dumps(
                {"request": f"What is {topic}?", "docs": str(DOCUMENTS), "max_turns_per_handoff": 4}
            )
            + "\n"
            for topic in ("HNSW", "IVF")
        )
    )

    submitted = handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=system.redis_url)
    ids = submitted.stdout.split()
    results = [
        handoff.run("result", job_id, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url)
        for job_id in ids
    ]

    assert [json.loads(completed.stdout)["status"] for completed in results] == ["ok", "ok"]
    assert {
        entry["limits"]["max_turns"]
        for entry in json.loads(results[0].stdout)["handoffs"]
        if entry["assigned_to"] == "researcher"
    } == {4}


def test_result_prints_the_answer_again(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    completed = handoff.run("result", job_id, HANDOFF_REDIS_URL=system.redis_url)

    assert completed.returncode == 0
    assert "Sources:\n[1] " in completed.stdout


def test_show_gives_every_handoff_and_result_in_full(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    shown = handoff.run("show", job_id, "--full", HANDOFF_REDIS_URL=system.redis_url).stdout
    exported = json.loads(
        handoff.run("show", job_id, "--full", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
    )

    for entry in exported["handoffs"]:
        assert f"=== handoff {entry['handoff_id']} to {entry['assigned_to']}" in shown
        assert f"=== result of {entry['handoff_id']}" in shown
        assert entry["task_description"].splitlines()[0] in shown
    assert "expected_output_format:" in shown


def test_json_output_sends_no_control_sequence_to_a_terminal(
    handoff: Handoff, system: RunningSystem
) -> None:
    """Control sequences may come from a request, a document or a model."""
    request = "What is \x9b31m HNSW\u202e?"
    job_id = handoff.run(
        "submit", "-", stdin=request, HANDOFF_REDIS_URL=system.redis_url
    ).stdout.strip()
    exported = handoff.run(
        "result", job_id, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url
    )
    commands = (
        ["list", "--json"],
        ["show", job_id, "--json"],
        ["show", job_id, "--full", "--json"],
        ["export", job_id],
    )
    outputs = [
        exported.stdout,
        *(handoff.run(*command, HANDOFF_REDIS_URL=system.redis_url).stdout for command in commands),
    ]

    assert not [text for text in outputs if {"\x9b", "\u202e"} & set(text)]
    assert all("\\u009b" in text for text in outputs)


def test_the_output_of_show_can_be_rebuilt_from_an_exported_file(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    completed = handoff.run(
        "export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url
    )
    exported = json.loads(
        handoff.run("show", job_id, "--full", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
    )

    assert (completed.returncode, completed.stdout) == (0, "")
    file = Export.from_json((handoff.folder / "job.json").read_text())
    assert json.loads(build_report(extract_record(file)).to_json()) == exported


@pytest.mark.parametrize("name", ["job.json", "an export"])
def test_trace_makes_the_same_page_of_a_job_and_of_its_export(
    handoff: Handoff, system: RunningSystem, job_id: str, name: str
) -> None:
    handoff.run("export", job_id, "--output", name, HANDOFF_REDIS_URL=system.redis_url)
    job_page = handoff.run("trace", job_id, HANDOFF_REDIS_URL=system.redis_url)
    export_page = handoff.run("trace", name, "-o", "-")

    assert (job_page.returncode, job_page.stdout) == (0, "")
    for page in ((handoff.folder / f"{job_id}.html").read_text(), export_page.stdout):
        assert f"<title>{job_id} " in page
        assert '"handoff_id":"planner.1"' in page


def test_trace_names_child_jobs_that_are_not_in_the_export(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    handoff.run("export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url)
    exported = json.loads((handoff.folder / "job.json").read_text())
    steps = [
        recorded["event"] for recorded in exported["journal"] if recorded["event"].get("group")
    ]
    for number, event in enumerate(steps):
        event["child"] = {
            "job_id": f"j-{number:012}",
            "limits": exported["journal"][0]["event"]["limits"],
        }
    (handoff.folder / "team.json").write_text(json.dumps(exported))
    completed = handoff.run("trace", "team.json")

    assert completed.returncode == 0, completed.stderr
    assert (
        f"not in the page: {len(steps)} child jobs, j-000000000000, j-000000000001"
        in completed.stderr
    )


def test_a_changed_export_is_refused_and_writes_no_other_file(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    handoff.run("export", job_id, "--output", "job.json", HANDOFF_REDIS_URL=system.redis_url)
    exported = json.loads((handoff.folder / "job.json").read_text())
    (handoff.folder / "named.json").write_text(
        json.dumps(exported | {"job": exported["job"] | {"job_id": "../elsewhere"}})
    )
    (handoff.folder / "cut.json").write_text(json.dumps(exported | {"payloads": {}}))
    (handoff.folder / "no-time.json").write_text(json.dumps(exported | {"at": math.nan}))
    dear = exported | {"job": exported["job"] | {"cost_microusd": 10**400}}
    (handoff.folder / "dear.json").write_text(json.dumps(dear))

    assert "handoff export" in error_line(handoff.run("trace", "named.json"), BAD_INPUT)
    for file in ("cut.json", "no-time.json", "dear.json"):
        assert "is incomplete" in error_line(handoff.run("trace", file), BAD_INPUT)
    assert not (handoff.folder.parent / "elsewhere.html").exists()


def test_retry_repeats_an_ended_job_from_a_step(
    handoff: Handoff, system: RunningSystem, job_id: str
) -> None:
    refused = handoff.run("retry", job_id, "--from", "nonsense", HANDOFF_REDIS_URL=system.redis_url)
    accepted = handoff.run("retry", job_id, "--from", "write", HANDOFF_REDIS_URL=system.redis_url)
    outcome = handoff.run(
        "result", job_id, "--wait", "30", "--json", HANDOFF_REDIS_URL=system.redis_url
    )

    assert (refused.returncode, "its steps are" in refused.stderr) == (2, True)
    assert accepted.returncode == 0
    attempts = [
        entry["attempt"]
        for entry in json.loads(outcome.stdout)["handoffs"]
        if entry["step_id"] == "write"
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


def test_the_specialists_command_lists_served_specialists_and_their_tools(
    handoff: Handoff, system: RunningSystem
) -> None:
    served = {
        specialist["name"]: specialist
        for specialist in json.loads(
            handoff.run("specialists", "--json", HANDOFF_REDIS_URL=system.redis_url).stdout
        )
    }

    assert "researcher" in served
    assert "legal" not in served, "no worker serves it"
    assert "search_documents" in served["researcher"]["tools"]
    assert len(served["researcher"]["workers"]) == 1


def test_doctor_passes_a_healthy_system_and_names_data_at_risk(
    handoff: Handoff, system: RunningSystem
) -> None:
    completed = handoff.run("doctor", "--json", HANDOFF_REDIS_URL=system.redis_url)
    findings = {finding["about"]: finding for finding in json.loads(completed.stdout)}

    assert completed.returncode == 0
    assert findings["queue supervisor"]["level"] == "ok"
    assert findings["queue researcher"]["level"] == "ok"
    assert (findings["persistence"]["level"], "appendonly" in findings["persistence"]["fix"]) == (
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
        completed = handoff.run("dead", *arguments, HANDOFF_REDIS_URL=redis_url)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    newest, middle, _ = (letter["id"] for letter in json.loads(dead("--json")))
    assert dead("list", "-n", "1").startswith(f"{newest}  ")
    assert '{"job_id": 8}' in dead("show", middle)
    assert json.loads(dead("show", middle, "--json"))["queue"] == "researcher"
    assert dead("drop", middle) == "1 dead letter dropped\n"
    assert [letter.body for letter in store.dead_letters.list_newest()] == [
        '{"job_id": 9}',
        '{"job_id": 7}',
    ]
    assert dead("drop", "--all") == "2 dead letters dropped\n"
    assert "no dead letters" in handoff.run("dead", HANDOFF_REDIS_URL=redis_url).stderr
    store.connection.close()


def test_list_without_jobs_says_how_to_submit_one(handoff: Handoff, redis_url: str) -> None:
    completed = handoff.run("list", HANDOFF_REDIS_URL=redis_url)

    assert (completed.returncode, completed.stdout) == (0, "")
    assert completed.stderr == 'handoff: there are no jobs (`handoff submit "..."` makes one)\n'
    assert handoff.run("list", "--json", HANDOFF_REDIS_URL=redis_url).stdout == "[]\n"


def test_doctor_fails_without_workers(handoff: Handoff, redis_url: str) -> None:
    completed = handoff.run("doctor", HANDOFF_REDIS_URL=redis_url)

    assert completed.returncode == 1
    assert "handoff worker --all" in completed.stdout
    assert "handoff supervisor" in completed.stdout
