"""Every mistake of a person gives one line with the problem and the remedy, a non-zero exit code,
and no traceback.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client
from tests.e2e.commands import BAD_INPUT, Handoff, said

pytestmark = pytest.mark.slow


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


@pytest.mark.parametrize("request_text", ["", "   \n "])
def test_an_empty_request(handoff: Handoff, request_text: str) -> None:
    assert "empty" in said(handoff.run("run", request_text), BAD_INPUT)
    assert "empty" in said(handoff.run("run", "-", stdin=request_text), BAD_INPUT)


def test_a_request_of_a_megabyte(handoff: Handoff) -> None:
    assert "--docs" in said(handoff.run("run", "-", stdin="word " * 200_000), BAD_INPUT)


def junk(folder: Path) -> None:
    (folder / "photo.bin").write_bytes(bytes(range(256)) * 40)


def huge(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)


def broken_pdf(folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing that a PDF should have")


def link_out(folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("not for this job")
    (folder / "link.txt").symlink_to("../secret.txt")


def empty(folder: Path) -> None:
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (junk, "photo.bin"),
        (huge, "huge.txt"),
        (broken_pdf, "broken.pdf"),
        (link_out, "link.txt"),
        (empty, "docs"),
    ],
)
def test_a_folder_that_cannot_be_taken(
    handoff: Handoff, make: Callable[[Path], None], named: str
) -> None:
    (handoff.folder / "docs").mkdir()
    make(handoff.folder / "docs")

    assert named in said(handoff.run("run", "What is it?", "--docs", "docs"), BAD_INPUT)


def test_no_such_folder(handoff: Handoff) -> None:
    assert "nowhere" in said(handoff.run("run", "What is it?", "--docs", "nowhere"), BAD_INPUT)


def test_a_path_that_is_no_folder_or_file_is_refused(handoff: Handoff) -> None:
    os.mkfifo(handoff.folder / "pipe")

    for docs in ("pipe", "/dev/zero"):
        assert f"{docs} is neither a folder nor a regular file" in said(
            handoff.run("run", "x", "--docs", docs), BAD_INPUT
        )


GOOD = "---\nname: poet\ndescription: Writes short verses about facts. Not for anything else.\n---\nYou write verses of four lines.\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"poet.md": "name: poet\n"}, "no front matter"),
        ({"poet.md": GOOD.replace("description", "descripton")}, "did you mean description?"),
        ({"poet.md": GOOD.replace("name: poet", "name: supervisor")}, "reserved"),
        ({"poet.md": GOOD, "second.md": GOOD}, "is taken by"),
        (
            {"poet.md": GOOD.replace("---\nYou", "tools: [serch_documents]\n---\nYou")},
            "did you mean search_documents?",
        ),
    ],
)
def test_a_specialist_that_is_wrong(handoff: Handoff, files: dict[str, str], words: str) -> None:
    (handoff.folder / "people").mkdir()
    for name, text in files.items():
        (handoff.folder / "people" / name).write_text(text)

    line = said(handoff.run("run", "What is it?", "--specialists", "people"), BAD_INPUT)

    assert "poet.md" in line
    assert words in line


def test_a_tool_that_is_wrong(handoff: Handoff) -> None:
    (handoff.folder / "things").mkdir()
    (handoff.folder / "things" / "own.py").write_text("def rhymes(word):\n    return word\n")

    done = handoff.run("run", "What is it?", "--tools", "things")
    assert "rhymes" in said(done, BAD_INPUT)
    assert "starting" not in done.stderr
    assert "no such folder of tools" in said(
        handoff.run("run", "What is it?", "--tools", "nowhere"), BAD_INPUT
    )


def test_a_real_model_without_a_key(handoff: Handoff) -> None:
    line = said(handoff.run("run", "What is it?", "--model", "claude-opus-5-5"), BAD_INPUT)

    assert "ANTHROPIC_API_KEY" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-usd", "0"],
        ["--max-usd", "nan"],
        ["--max-turns", "0"],
        ["--answer-schema", "none.json"],
        ["--no"],
    ],
)
def test_an_option_that_makes_no_sense(handoff: Handoff, arguments: list[str]) -> None:
    assert said(
        handoff.run("run", "What is it?", *arguments),
        BAD_INPUT,
    )


def test_a_run_that_this_machine_has_not_interrupted_is_refused(handoff: Handoff) -> None:
    line = said(handoff.run("retry", "j-000000000000"), BAD_INPUT)

    assert "this machine has no interrupted run j-000000000000 (it has: none)" in line
    assert "set HANDOFF_REDIS_URL" in line


def test_an_invalid_answer_schema_is_refused(handoff: Handoff) -> None:
    (handoff.folder / "form.json").write_text('{"type": "banana"}')

    assert "schema" in said(
        handoff.run("run", "What is it?", "--answer-schema", "form.json"), BAD_INPUT
    )


COMMANDS = [["watch"], ["result"], ["show"], ["export"], ["cancel"], ["retry"], ["delete"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_job(handoff: Handoff, redis_url: str, command: list[str]) -> None:
    line = said(handoff.run(*command, "j-0123456789ab", HANDOFF_REDIS_URL=redis_url), BAD_INPUT)

    assert "there is no job j-0123456789ab" in line
    assert "`handoff list`" in line


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("job_id", ["nonsense", "../../etc", "j-0123456789AB", ""])
def test_an_invalid_job_id_is_refused(
    handoff: Handoff, redis_url: str, command: list[str], job_id: str
) -> None:
    line = said(handoff.run(*command, job_id, HANDOFF_REDIS_URL=redis_url), BAD_INPUT)

    assert f"{job_id!r} is no job id" in line
    assert "j-0123456789ab" in line


def test_worker_options_are_refused_with_the_users_own_broker(
    handoff: Handoff, redis_url: str
) -> None:
    line = said(
        handoff.run("run", "x", "--specialists", "people", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert "HANDOFF_SPECIALISTS_DIRS" in line


def test_a_setting_that_is_wrong_is_named_without_its_value(handoff: Handoff) -> None:
    line = said(handoff.run("list", HANDOFF_LEASE_S="very-long"), BAD_INPUT)

    assert "lease_s" in line.lower()
    assert "very-long" not in line


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ANTHROPIC_API_KEY", "sk-canary-90f3\n"),
        ("ANTHROPIC_AUTH_TOKEN", "canary\r\n"),
        ("ANTHROPIC_BASE_URL", "https://user:canary@h.example?x\n"),
        ("HANDOFF_LEASE_S", "1e400"),
        ("HANDOFF_DAY_TOKENS", "99999999999999999999999"),
        ("HANDOFF_MAX_REQUEST_CHARS", "-1"),
    ],
)
@pytest.mark.parametrize("command", [["doctor", "--json"], ["run", "x"], ["worker", "--all"]])
def test_a_setting_outside_its_bounds_ends_each_command_at_once(
    handoff: Handoff, variable: str, value: str, command: list[str]
) -> None:
    line = said(handoff.run(*command, **{variable: value}), BAD_INPUT)  # type: ignore[arg-type]

    assert variable in line
    assert "canary" not in line


@pytest.mark.parametrize(
    "fields",
    [
        '"timeout": 9300000000000000',
        '"max_usd": Infinity',
        '"max_usd": NaN',
        '"max_usd": 1e400',
        '"max_turns": 99999999999999999999',
        '"max_tokens": -1',
        '"approve_above_usd": 1e300',
    ],
)
def test_a_number_outside_its_bounds_in_a_file_of_jobs_names_line_and_field(
    handoff: Handoff, redis_url: str, fields: str
) -> None:
    (handoff.folder / "jobs.jsonl").write_text('{"request": "x", ' + fields + "}\n")
    line = said(
        handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert "jobs.jsonl:1: " in line
    assert fields.split('"')[1] in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["requeue"],
        ["drop"],
        ["list", "--all"],
        ["show", "x", "--all"],
        ["drop", "x", "--all"],
        ["list", "x"],
        ["burn"],
    ],
)
def test_impossible_actions_on_dead_letters_are_refused(
    handoff: Handoff, redis_url: str, arguments: list[str]
) -> None:
    assert "handoff" in said(
        handoff.run("dead", *arguments, HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )


def test_an_unknown_dead_letter(handoff: Handoff, redis_url: str) -> None:
    for what in ("show", "requeue", "drop"):
        assert "there is no dead letter 'x' (see `handoff dead`)" in said(
            handoff.run("dead", what, "x", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
        )


def test_an_unknown_role_gets_a_suggestion(handoff: Handoff) -> None:
    assert "did you mean researcher?" in said(handoff.run("worker", "resercher"), BAD_INPUT)
    assert "did you mean writer?" in said(handoff.run("up", "--worker", "wrter=2"), BAD_INPUT)
    assert "ROLE=N" in said(handoff.run("up", "--worker", "writer"), BAD_INPUT)


def test_a_reader_that_stops_reading_is_no_error(handoff: Handoff) -> None:
    done = subprocess.run(
        f"{' '.join(handoff.command('specialists'))} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=handoff.folder,
        env=handoff.environment(),
        timeout=30,
    )

    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"request": "one"}\n{"request": }\n', "jobs.jsonl:2: "),
        ('{"request": "one"}\n\n{"request": ""}\n', "jobs.jsonl:3: the request is empty"),
        ('{"request": "one", "dox": "x"}\n', "jobs.jsonl:1: dox"),
        (
            '{"request": "one", "gates": {"min_words": 9, "min_words": 1}}\n',
            "jobs.jsonl:1: 'min_words' is given twice; remove one; nothing",
        ),
        ('{"request": "one"}\n{"request": "two", "docs": "nowhere"}\n', "jobs.jsonl:2: "),
        (
            '{"request": "one"}\n{"request": "two", "after": "j-000000000000"}\n',
            "jobs.jsonl:2: .*no job j-0000.*nothing was",
        ),
        (
            '{"request": "one", "idempotency_key": "k"}\n\n{"request": "two", "idempotency_key": "k"}\n',
            "jobs.jsonl:3: .* by line 1: use",
        ),
        ("", "holds no job"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_submitted(
    handoff: Handoff, redis_url: str, lines: str, words: str
) -> None:
    (handoff.folder / "jobs.jsonl").write_text(lines)

    assert re.search(
        words,
        said(handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url), BAD_INPUT),
    )
    assert client.connect(redis_url, Settings()).newest() == []


def test_a_line_with_the_key_of_another_job_is_named_and_nothing_is_submitted(
    handoff: Handoff, redis_url: str
) -> None:
    jobs = client.connect(redis_url, Settings())
    job_id = jobs.submit(client.Request("one", idempotency_key="k"))
    lines = (
        '{"request": "new"}',
        '{"request": "one", "idempotency_key": "k"}',
        '{"request": "two", "idempotency_key": "k"}',
    )
    (handoff.folder / "jobs.jsonl").write_text("\n".join((lines[0], lines[2])))

    line = said(
        handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert f"jobs.jsonl:2: the idempotency key was used for another request by job {job_id}" in line
    assert len(jobs.newest()) == 1
    (handoff.folder / "jobs.jsonl").write_text("\n".join(lines[:2]))
    assert (
        handoff.run(
            "submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url
        ).stdout.splitlines()[1]
        == job_id
    )


def test_a_job_whose_commit_got_no_reply_is_submitted_once(
    handoff: Handoff, redis_url: str
) -> None:
    points = handoff.folder / "failpoints"
    points.mkdir()
    (points / "script.commit.after").write_text("drop")

    done = handoff.run("submit", "one", HANDOFF_REDIS_URL=redis_url, HANDOFF_FAILPOINTS=str(points))

    assert [path.name.partition("@")[0] for path in points.iterdir() if "@" in path.name] == [
        "script.commit.after"
    ]
    assert done.returncode == 0, done.stderr
    assert [one.job_id for one in client.connect(redis_url, Settings()).newest()] == [
        done.stdout.strip()
    ]


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (
            ("--only", "teams"),
            "--only 'teams' is not a mode: did you mean team?",
        ),
        (
            ("--only", "team,chords"),
            "--only 'chords' is not a mode: name modes, or chords alone (there are: auto",
        ),
    ],
)
def test_a_run_of_chaos_that_cannot_be_is_refused_before_anything_starts(
    handoff: Handoff, words: tuple[str, ...], because: str
) -> None:
    assert because in said(handoff.run("chaos", *words), BAD_INPUT)


@pytest.mark.parametrize("command", [["up"], ["specialists"], ["specialists", "--lint"]])
def test_a_specialist_with_an_unknown_tool_is_refused_before_the_start(
    handoff: Handoff, command: list[str]
) -> None:
    people = handoff.folder / "people"
    people.mkdir()
    instructions = "You know everything that there is to know."
    (people / "oracle.md").write_text(
        f"---\nname: oracle\ndescription: Knows what nobody else knows.\ntools: [web_serch]\n---\n{instructions}\n"
    )

    line = said(handoff.run(*command, "--specialists", "people"), BAD_INPUT)

    assert "oracle.md:4: tools: there is no tool web_serch; did you mean web_search?" in line
    assert not (handoff.folder / ".handoff").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [("{}", "handoff export"), ("no JSON", "handoff export"), (None, "cannot be read")],
)
def test_a_file_to_trace_that_is_no_exported_job(
    handoff: Handoff, content: str | None, named: str
) -> None:
    if content is not None:
        (handoff.folder / "job.json").write_text(content)

    assert named in said(handoff.run("trace", "job.json"), BAD_INPUT)
