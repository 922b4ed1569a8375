"""No text of a job, a dead letter or a note changes the terminal of the user who reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.display.job_report import print_section
from handoff_queue.supervisor.cli.display.tables import Column, fit_table
from handoff_queue.supervisor.cli.display.terminal import get_stderr, get_stdout, write_line
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from tests.doubles.handoffs import a_handoff
from tests.doubles.jobs import a_job, issue_handoff
from tests.e2e.commands import HandoffInProcess

SEQUENCES = {
    "clear": "\x1b[2J",
    "colour": "\x1b[31m",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "link": "\x1b]8;;http://127.0.0.1:9\x1b\\owned\x1b]8;;\x1b\\",
    "device control": "\x1bP$q\x1b\\",
    "answer back": "\x05",
    "report": "\x1b[6n",
    "program": "\x1b_owned\x1b\\",
    "one byte": "\x9b2J",
    "one byte of a title": "\x9d0;owned\x9c",
    "back": "\x08" * 20,
    "start of the line": "\rowned",
    "bell": "\x07",
    "form feed": "\x0c",
    "vertical tab": "\x0b",
    "delete": "\x7f",
    "another direction": "\u202edenwo",
    "isolate": "\u2066owned\u2069",
    "line separator": "\u2028owned",
    "next line": "\x85owned",
    "other characters": "\x0eowned\x0f",
    "markup of rich": "[link=http://127.0.0.1:9]owned[/link][bold red]",
}
OBEYED = {*map(chr, (*range(9), *range(11, 32), *range(127, 160)))} | {*"\u202e\u2066\u2028"}
"""Characters that a terminal obeys, without the tab and the line feed."""
COMMANDS = {
    "audit": ("audit JOB", "audit JOB --json"),
    "dead": ("dead", "dead --json", "dead show LETTER"),
    "export": ("export JOB -o -",),
    "list": ("list", "list --json"),
    "memory": ("memory", "memory --json"),
    "result": ("result JOB", "result JOB --json"),
    "schedule": ("schedule", "schedule --json"),
    "show": ("show JOB", "show JOB --full", "show JOB --json"),
    "trace": ("trace JOB -o -",),
    "watch": ("watch JOB", "watch JOB --json"),
}
"""Commands that print stored texts, each with the lines that print them."""
OTHER_COMMANDS = {
    # They print ids, names, figures and their own arguments.
    *("cancel", "delete", "fork", "keys", "pause", "retry", "say", "submit", "token", "unpause"),
    # They print names and figures of the fleet.
    *("doctor", "specialists", "stats", "top"),
    # It prints texts of the commands.
    "help",
    # They start processes, or serve clients with other forms of output.
    *("chaos", "mcp", "run", "serve", "supervisor", "up", "worker"),
    # They need a model or a waiting question. Their output passes through the same functions.
    *("approve", "compare", "eval", "golden", "quote", "reject"),
}
"""Commands that this file does not run."""


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_request_changes_no_terminal(
    broker: Client, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    job_id = broker.submit(Request(f"Look {SEQUENCES[kind]} here", tenant="acme"))
    broker.cancel(job_id)

    for name, arguments in (("list", []), ("list", ["--json"]), ("show", [job_id])):
        load_command(name).main(arguments, standalone_mode=False)
    printed = capsys.readouterr()

    assert not OBEYED & {*printed.out, *printed.err}
    assert "here" in printed.out


def test_each_command_is_in_one_of_the_lists_of_this_file() -> None:
    """A new command fails here, until it is in `COMMANDS` or in `OTHER_COMMANDS`."""
    assert COMMANDS.keys() | OTHER_COMMANDS == ENTRIES.keys()
    assert not COMMANDS.keys() & OTHER_COMMANDS
    assert all(line.split()[0] == name for name, lines in COMMANDS.items() for line in lines)


def test_no_command_prints_a_stored_text_that_a_terminal_obeys(
    broker: Client, redis_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"Look {' '.join(SEQUENCES.values())} here"
    job_id = broker.submit(Request(text, idempotency_key="k"))
    end = JobEnded(status=JobStatus.FAILED, reason=text)
    broker.store.journal.append(job_id, end, {"status": "failed"})
    broker.store.dead_letters.add("writer", text, text)
    note = Note(path="a/b", text=text, author="ann", at=1, expires_at=4e9, origins=("user",))
    broker.store.notes.write("default", note, None)
    broker.add_schedule("news", Request(text), ScheduleOptions("0 0 1 1 *"))
    values = {"JOB": job_id, "LETTER": broker.store.dead_letters.list_newest()[0].id}
    handoff = HandoffInProcess(tmp_path, capture=capfd)

    obeyed: dict[str, set[str]] = {}
    silent: set[str] = set()
    for name, lines in COMMANDS.items():
        printed = ""
        for line in lines:
            words = [values.get(word, word) for word in line.split()]
            completed = handoff.run(*words, HANDOFF_REDIS_URL=redis_url)
            printed += completed.stdout + completed.stderr
            if unsafe := OBEYED & {*completed.stdout, *completed.stderr}:
                obeyed[line] = unsafe
        if "Look" not in printed:
            silent.add(name)

    assert obeyed == {}
    assert silent == {"audit"}


def test_no_command_prints_the_escapes_that_a_worker_writes_into_its_handoff(
    broker: Client, redis_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker writes the state of the handoffs of its role."""
    store = broker.store
    job_id = a_job(store)
    handoff = a_handoff(job_id=job_id)
    issue_handoff(store, handoff, handoff.to_json())
    handoff_state = {"state": "Look " + SEQUENCES["title"], "worker": SEQUENCES["one byte"]}
    store.connection.redis.hset(
        keys.handoff(job_id, "researcher", handoff.handoff_id), mapping=handoff_state
    )
    end = JobEnded(status=JobStatus.FAILED, reason="no_plan")
    store.journal.append(job_id, end, {"status": "failed"})
    program = HandoffInProcess(tmp_path, capture=capfd)

    printed: dict[str, str] = {}
    for line in ("show", "show --handoff ID"):
        name, *options = line.replace("ID", handoff.handoff_id).split()
        completed = program.run(name, job_id, *options, HANDOFF_REDIS_URL=redis_url)
        printed[line] = completed.stdout + completed.stderr

    assert all("Look" in text for text in printed.values())
    assert not {line: text for line, text in printed.items() if OBEYED & {*text}}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_table_and_a_line_change_no_terminal(
    capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    text = f"Look {SEQUENCES[kind]} here"

    get_stdout().print(fit_table([Column("name", 0, least=4)], [([text], "red")], 80))
    get_stderr().print(Text(text, style="bold"))
    write_line(text)
    print_section(text, "body")
    printed = capsys.readouterr()

    assert not OBEYED & {*printed.out, *printed.err}
    assert printed.out.count("Look") == 3


def test_a_table_keeps_its_own_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    get_stdout().print(Text("Look", style="red"))

    assert capsys.readouterr().out == "\x1b[31mLook\x1b[0m\n"


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_name_that_is_refused_changes_no_terminal(broker: Client, kind: str) -> None:
    refused: list[str] = []
    for request in (
        Request("Look here.", tenant=f"a{SEQUENCES[kind]}"),
        Request("Look here.", specialists=(f"a{SEQUENCES[kind]}",)),
        Request("Look here.", webhook_url=f"http://127.0.0.1:9/{SEQUENCES[kind]} x"),
    ):
        try:
            broker.submit(request)
        except UserError as error:
            refused.append(str(error))

    assert not OBEYED & {*"".join(refused)}
    assert len(refused) >= 2
