"""Bad input gives one line with the problem and the remedy, exit code 2, and no traceback.

Most commands run in the test process. A command that starts a process runs in a forked
process, and its test is slow. Two commands run in a new interpreter: without Redis, and with a
connection.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.supervisor.cli.errors import FAILED
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import BAD_INPUT, Handoff, error_line, job_commands
from tests.waiting import MAX_WAIT_S

COLD_COMMANDS = ("run x --no", "dead show x")


@pytest.fixture
def forked_handoff(tmp_path: Path) -> Handoff:
    """Return the command in a forked process, which forks its children too."""
    return Handoff(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "environment", "problem"),
    [
        ("run x --no", {}, "there is no option --no"),
        ("run x --docs nowhere", {}, "nowhere"),
        ("list", {"HANDOFF_LEASE_S": "very-long"}, "HANDOFF_LEASE_S"),
        ("dead show x", {}, "there is no dead letter 'x'"),
        ("worker resercher", {}, "did you mean researcher?"),
    ],
)
def test_a_new_process_with_bad_input_ends_with_one_line(
    tmp_path: Path, redis_url: str, command: str, environment: dict[str, str], problem: str
) -> None:
    url = {"HANDOFF_REDIS_URL": redis_url} if command.startswith("dead") else {}
    handoff = Handoff(tmp_path, is_cold=command in COLD_COMMANDS)
    completed = handoff.run(*command.split(), **url, **environment)  # type: ignore[arg-type]

    assert problem in error_line(completed, BAD_INPUT)


@pytest.mark.parametrize("request_text", ["", "   \n "])
def test_an_empty_request_is_refused(handoff: Handoff, request_text: str) -> None:
    assert "empty" in error_line(handoff.run("run", request_text), BAD_INPUT)
    assert "empty" in error_line(handoff.run("run", "-", stdin=request_text), BAD_INPUT)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give either a request or --file"),
        (("x", "--file", "jobs.jsonl"), "give either a request or --file"),
        (("",), "the request is empty"),
        (("--file", "jobs.jsonl", "--idempotency-key", "k"), "--idempotency-key is for one job"),
    ],
)
def test_submit_checks_the_request_before_it_looks_for_redis(
    handoff: Handoff, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in error_line(handoff.run("submit", *arguments), BAD_INPUT)


def test_a_request_of_a_megabyte_is_refused(handoff: Handoff) -> None:
    assert "--docs" in error_line(handoff.run("run", "-", stdin="word " * 200_000), BAD_INPUT)


def write_binary_file(folder: Path) -> None:
    (folder / "photo.bin").write_bytes(bytes(range(256)) * 40)


def write_huge_file(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)


def write_broken_pdf(folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing that a PDF should have")


def write_outside_link(folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("not for this job")
    (folder / "link.txt").symlink_to("../secret.txt")


def write_nothing(folder: Path) -> None:
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (write_binary_file, "photo.bin"),
        (write_huge_file, "huge.txt"),
        (write_broken_pdf, "broken.pdf"),
        (write_outside_link, "link.txt"),
        (write_nothing, "docs"),
    ],
)
def test_a_folder_of_unusable_documents_is_refused(
    handoff: Handoff, redis_url: str, make: Callable[[Path], None], named: str
) -> None:
    (handoff.folder / "docs").mkdir()
    make(handoff.folder / "docs")

    line = error_line(
        handoff.run("run", "What is it?", "--docs", "docs", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert named in line


def test_a_path_that_is_not_a_folder_or_file_is_refused(handoff: Handoff, redis_url: str) -> None:
    os.mkfifo(handoff.folder / "pipe")

    for docs in ("pipe", "/dev/zero"):
        assert f"{docs} is neither a folder nor a regular file" in error_line(
            handoff.run("run", "x", "--docs", docs, HANDOFF_REDIS_URL=redis_url), BAD_INPUT
        )


VALID_SPECIALIST = (
    "---\nname: poet\ndescription: Writes short verses about facts. Not for anything else.\n---\n"
    "You write verses of four lines.\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"poet.md": "name: poet\n"}, "no front matter"),
        (
            {"poet.md": VALID_SPECIALIST.replace("description", "descripton")},
            "did you mean description?",
        ),
        ({"poet.md": VALID_SPECIALIST.replace("name: poet", "name: supervisor")}, "reserved"),
        ({"poet.md": VALID_SPECIALIST, "second.md": VALID_SPECIALIST}, "is taken by"),
        (
            {"poet.md": VALID_SPECIALIST.replace("---\nYou", "tools: [serch_documents]\n---\nYou")},
            "did you mean search_documents?",
        ),
    ],
)
def test_an_invalid_specialist_is_refused(
    forked_handoff: Handoff, files: dict[str, str], problem: str
) -> None:
    (forked_handoff.folder / "people").mkdir()
    for name, text in files.items():
        (forked_handoff.folder / "people" / name).write_text(text)

    line = error_line(
        forked_handoff.run("run", "What is it?", "--specialists", "people"), BAD_INPUT
    )

    assert "poet.md" in line
    assert problem in line


@pytest.mark.slow
def test_an_invalid_tool_is_refused(forked_handoff: Handoff) -> None:
    (forked_handoff.folder / "things").mkdir()
    (forked_handoff.folder / "things" / "own.py").write_text("def rhymes(word):\n    return word\n")

    completed = forked_handoff.run("run", "What is it?", "--tools", "things")
    assert "rhymes" in error_line(completed, BAD_INPUT)
    assert "starting" not in completed.stderr
    assert "no such folder of tools" in error_line(
        forked_handoff.run("run", "What is it?", "--tools", "nowhere"), BAD_INPUT
    )


def test_a_model_without_a_key_is_refused(handoff: Handoff) -> None:
    line = error_line(handoff.run("run", "What is it?", "--model", "claude-opus-5-5"), BAD_INPUT)

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
def test_an_invalid_option_is_refused(handoff: Handoff, arguments: list[str]) -> None:
    assert error_line(
        handoff.run("run", "What is it?", *arguments),
        BAD_INPUT,
    )


def test_retry_refuses_a_run_that_this_machine_has_not_interrupted(handoff: Handoff) -> None:
    line = error_line(handoff.run("retry", "j-000000000000"), BAD_INPUT)

    assert "this machine has no interrupted run j-000000000000 (it has: none)" in line
    assert "set HANDOFF_REDIS_URL" in line


def test_an_invalid_answer_schema_is_refused(handoff: Handoff) -> None:
    (handoff.folder / "form.json").write_text('{"type": "banana"}')

    assert "schema" in error_line(
        handoff.run("run", "What is it?", "--answer-schema", "form.json"), BAD_INPUT
    )


JOB_COMMANDS = {
    **{name: f"{name} JOB" for name in ("watch", "result", "show", "trace", "export", "audit")},
    **{name: f"{name} JOB" for name in ("approve", "reject", "retry", "cancel", "delete")},
    "compare": "compare JOB JOB",
    "fork": "fork JOB --from write",
    "golden": "golden add JOB",
    "say": "say JOB Shorter.",
}
"""Commands with a JOB argument, each with a line that has one."""


def run_with_job(
    handoff: Handoff, redis_url: str, command: str, job_id: str
) -> subprocess.CompletedProcess[str]:
    words = [job_id if word == "JOB" else word for word in JOB_COMMANDS[command].split()]
    return handoff.run(*words, HANDOFF_REDIS_URL=redis_url)


def test_each_command_with_a_job_argument_is_tested_here() -> None:
    assert JOB_COMMANDS.keys() == set(job_commands())


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_an_unknown_job_is_refused(handoff: Handoff, redis_url: str, command: str) -> None:
    line = error_line(run_with_job(handoff, redis_url, command, "j-0123456789ab"), BAD_INPUT)

    assert "there is no job j-0123456789ab" in line
    assert "`handoff list`" in line


@pytest.mark.parametrize("command", JOB_COMMANDS)
@pytest.mark.parametrize("job_id", ["nonsense", "../../etc", "j-0123456789AB", ""])
def test_an_invalid_job_id_is_refused(
    handoff: Handoff, redis_url: str, command: str, job_id: str
) -> None:
    line = error_line(run_with_job(handoff, redis_url, command, job_id), BAD_INPUT)

    assert f"{job_id!r} is not a job id" in line
    assert "j-k5tq2wbz7x3mhd4n" in line


def test_worker_options_are_refused_with_the_users_own_broker(
    handoff: Handoff, redis_url: str
) -> None:
    line = error_line(
        handoff.run("run", "x", "--specialists", "people", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert "HANDOFF_SPECIALISTS_DIRS" in line


def test_an_invalid_setting_is_named_with_its_value(handoff: Handoff) -> None:
    line = error_line(handoff.run("list", HANDOFF_LEASE_S="very-long"), BAD_INPUT)

    assert "HANDOFF_LEASE_S: must be a number of seconds" in line
    assert "not 'very-long'" in line


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
    line = error_line(handoff.run(*command, **{variable: value}), BAD_INPUT)  # type: ignore[arg-type]

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
    line = error_line(
        handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
    )

    assert "jobs.jsonl:1: " in line
    assert fields.split('"')[1] in line


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("show", "`handoff dead show` needs an ID (see `handoff dead`)"),
        ("requeue", "`handoff dead requeue` needs an ID (see `handoff dead`)"),
        ("drop", "`handoff dead drop` needs an ID (see `handoff dead`) or --all"),
        ("list --all", "only `handoff dead drop` takes --all: leave it out"),
        ("show x --all", "only `handoff dead drop` takes --all: leave it out"),
        ("drop x --all", "name one dead letter, or use --all, but not both"),
        ("list x", "`handoff dead list` takes no ID: use `handoff dead show ID` for one letter"),
        ("show x -n 3", "only `handoff dead list` takes -n: leave it out"),
        ("drop x --json", "only `handoff dead list` and `show` take --json: leave it out"),
        ("requeue x --json", "only `handoff dead list` and `show` take --json: leave it out"),
    ],
)
def test_the_error_of_an_impossible_action_on_dead_letters_names_only_this_action(
    handoff: Handoff, redis_url: str, typed: str, line: str
) -> None:
    refused = handoff.run("dead", *typed.split(), HANDOFF_REDIS_URL=redis_url)

    assert error_line(refused, BAD_INPUT) == f"handoff: {line}"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("memory write a/b text --json", "only `handoff memory list` and `show` take --json"),
        ("memory delete a/b --json", "only `handoff memory list` and `show` take --json"),
        ("delete j-0123456789ab --wait 1m", "--wait is for the deletion of a tenant"),
        ("result j-0123456789ab --output a.csv --json", "prints no JSON: leave out --json"),
        ("specialists --yes", "--yes is for --accept-mcp FILE"),
        ("specialists --lint --json", "--lint prints one remark a line and no JSON"),
        ("specialists --accept-mcp a.md --lint", "takes --yes only: leave the rest out"),
        ("specialists --accept-mcp a.md --tools .", "takes --yes only: leave the rest out"),
        ("chaos --failpoints --kills 3", "leave out --jobs and --kills"),
        ("chaos --failpoints --jobs 3", "leave out --jobs and --kills"),
        ("up --flower-port 5555", "--flower-port needs --flower"),
        ("up --no-serve --serve-port 8321", "--no-serve and --serve-port exclude each other"),
        ("compare What? --no-grader --grader-model m", "--no-grader excludes --grader-model"),
        ("compare What? --no-grader --rubric r.yaml", "--no-grader excludes --grader-model"),
        ("compare What? --workflow brief", "--workflow is for the mode pipeline"),
    ],
)
def test_an_option_that_the_command_would_ignore_is_refused(
    handoff: Handoff, typed: str, line: str
) -> None:
    assert line in error_line(handoff.run(*typed.split()), BAD_INPUT)


def test_an_unknown_action_on_dead_letters_is_refused(handoff: Handoff, redis_url: str) -> None:
    refused = handoff.run("dead", "burn", HANDOFF_REDIS_URL=redis_url)

    assert "'burn'" in error_line(refused, BAD_INPUT)


def test_an_unknown_dead_letter_is_refused(handoff: Handoff, redis_url: str) -> None:
    for action in ("show", "requeue", "drop"):
        assert "there is no dead letter 'x' (see `handoff dead`)" in error_line(
            handoff.run("dead", action, "x", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
        )


def test_an_unknown_role_gets_a_suggestion(handoff: Handoff) -> None:
    assert "did you mean researcher?" in error_line(handoff.run("worker", "resercher"), BAD_INPUT)
    assert "did you mean writer?" in error_line(handoff.run("up", "--worker", "wrter=2"), BAD_INPUT)
    assert "SPECIALIST=N" in error_line(handoff.run("up", "--worker", "writer"), BAD_INPUT)


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_not_an_error(tmp_path: Path) -> None:
    handoff = Handoff(tmp_path)
    completed = subprocess.run(
        f"{' '.join(handoff.command('specialists'))} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=handoff.folder,
        env=handoff.environment(),
        timeout=MAX_WAIT_S,
    )

    assert "Traceback" not in completed.stderr
    assert "BrokenPipe" not in completed.stderr


@pytest.mark.parametrize(
    ("lines", "text"),
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
            (
                '{"request": "one", "idempotency_key": "k"}\n\n{"request": "two",'
                ' "idempotency_key": "k"}\n'
            ),
            "jobs.jsonl:3: .* by line 1: use",
        ),
        ("", "holds no job"),
    ],
)
def test_an_invalid_line_is_named_and_nothing_is_submitted(
    handoff: Handoff, redis_url: str, lines: str, text: str
) -> None:
    (handoff.folder / "jobs.jsonl").write_text(lines)

    assert re.search(
        text,
        error_line(
            handoff.run("submit", "--file", "jobs.jsonl", HANDOFF_REDIS_URL=redis_url), BAD_INPUT
        ),
    )
    assert client.connect(redis_url, Settings()).newest() == []


def test_a_line_with_the_key_of_another_job_is_named_and_nothing_is_submitted(
    handoff: Handoff, redis_url: str
) -> None:
    jobs = client.connect(redis_url, Settings())
    job_id = jobs.submit(Request("one", idempotency_key="k"))
    lines = (
        '{"request": "new"}',
        '{"request": "one", "idempotency_key": "k"}',
        '{"request": "two", "idempotency_key": "k"}',
    )
    (handoff.folder / "jobs.jsonl").write_text("\n".join((lines[0], lines[2])))

    line = error_line(
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


def test_a_job_above_the_limit_of_its_tenant_is_refused_in_one_line(
    handoff: Handoff, redis_url: str
) -> None:
    jobs = client.connect(redis_url, Settings())
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=1))
    jobs.submit(Request("one"))

    line = error_line(handoff.run("submit", "two", HANDOFF_REDIS_URL=redis_url), BAD_INPUT)

    assert line.startswith("handoff: tenant default has reached its limit of open jobs (1,")


@pytest.mark.slow
def test_a_job_whose_commit_got_no_reply_is_submitted_once(tmp_path: Path, redis_url: str) -> None:
    handoff = Handoff(tmp_path, is_cold=True)
    points = handoff.folder / "failpoints"
    points.mkdir()
    (points / "script.commit.after").write_text("drop")

    completed = handoff.run(
        "submit", "one", HANDOFF_REDIS_URL=redis_url, HANDOFF_FAILPOINTS=str(points)
    )

    assert [path.name.partition("@")[0] for path in points.iterdir() if "@" in path.name] == [
        "script.commit.after"
    ]
    assert completed.returncode == 0, completed.stderr
    assert [job.job_id for job in client.connect(redis_url, Settings()).newest()] == [
        completed.stdout.strip()
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ("--only", "teams"),
            "--only 'teams' is not a mode: did you mean team?",
        ),
        (
            ("--only", "team,chords"),
            "--only 'chords' is not a mode: name modes, or chords or features alone (known: auto",
        ),
    ],
)
def test_an_impossible_chaos_run_is_refused_before_anything_starts(
    handoff: Handoff, options: tuple[str, ...], reason: str
) -> None:
    assert reason in error_line(handoff.run("chaos", *options), BAD_INPUT)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["up"], ["specialists"], ["specialists", "--lint"]])
def test_a_specialist_with_an_unknown_tool_is_refused_before_the_start(
    forked_handoff: Handoff, command: list[str]
) -> None:
    people = forked_handoff.folder / "people"
    people.mkdir()
    instructions = "You know everything that there is to know."
    (people / "oracle.md").write_text(
        "---\nname: oracle\ndescription: Knows what nobody else knows.\ntools:"
        f" [web_serch]\n---\n{instructions}\n"
    )

    line = error_line(forked_handoff.run(*command, "--specialists", "people"), BAD_INPUT)

    assert "oracle.md:4: tools: there is no tool web_serch; did you mean web_search?" in line
    assert not (forked_handoff.folder / ".handoff").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [("{}", "handoff export"), ("no JSON", "handoff export"), (None, "cannot be read")],
)
def test_trace_refuses_a_file_that_is_not_an_exported_job(
    handoff: Handoff, content: str | None, named: str
) -> None:
    if content is not None:
        (handoff.folder / "job.json").write_text(content)

    assert named in error_line(handoff.run("trace", "job.json"), BAD_INPUT)


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("run x --workflow brief -o nowhere/rows.csv", BAD_INPUT),
        ("retry JOB -o nowhere/rows.csv", BAD_INPUT),
        ("result JOB -o nowhere/rows.csv", BAD_INPUT),
        ("export JOB -o nowhere/job.json", FAILED),
        ("export --tenant default -o nowhere/jobs.jsonl", FAILED),
        ("trace JOB -o nowhere/page.html", FAILED),
    ],
)
def test_an_output_file_in_a_missing_folder_is_refused_with_a_remedy(
    handoff: Handoff, redis_url: str, command: str, exit_code: int
) -> None:
    jobs = client.connect(redis_url, Settings())
    job_id = jobs.submit(Request("one"))
    words = [job_id if word == "JOB" else word for word in command.split()]

    line = error_line(handoff.run(*words, HANDOFF_REDIS_URL=redis_url), exit_code)

    assert f"{words[-1]}: No such file or directory: make its folder first, or name another" in line
    assert len(jobs.newest()) == 1, "no job has begun"


def test_an_export_of_a_tenant_without_data_says_that_there_is_none(
    handoff: Handoff, redis_url: str
) -> None:
    nobody = handoff.run("export", "--tenant", "nope", HANDOFF_REDIS_URL=redis_url)
    client.connect(redis_url, Settings()).submit(Request("one"))
    somebody = handoff.run("export", "--tenant", "default", HANDOFF_REDIS_URL=redis_url)

    assert nobody.stderr == "handoff: tenant nope has no jobs, schedules or notes: check the name\n"
    assert (nobody.returncode, len(nobody.stdout.splitlines())) == (0, 2)
    assert (somebody.stderr, len(somebody.stdout.splitlines())) == ("", 3)
