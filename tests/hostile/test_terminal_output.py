"""No text of a job changes the terminal of the user who lists the job."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.client.client import Client, Request

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
COMMANDS = (("list",), ("show", "JOB"), ("list", "--json"), ("watch", "JOB"))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_request_changes_no_terminal(
    broker: Client, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    job_id = broker.submit(Request(f"Look {SEQUENCES[kind]} here", tenant="acme"))
    broker.cancel(job_id)

    for name, *arguments in COMMANDS[:3]:
        words = [job_id if word == "JOB" else word for word in arguments]
        load_command(name).main(words, standalone_mode=False)
    printed = capsys.readouterr()

    assert not OBEYED & {*printed.out, *printed.err}
    assert "here" in printed.out


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
