"""Every command of the documents works in the shell that `handoff up` prepares.

A new sample is run without a change here. Equal commands run once. Ids in a sample stand for jobs,
dead letters and tokens in the state that the command needs, and addresses for servers of this test.

A `handoff` command that starts no process runs in the test process.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from handoff_queue.chaos.leaks import find_keys_without_expiry
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import find_private_key_file
from handoff_queue.supervisor.cli.errors import BAD_INPUT, OK
from handoff_queue.supervisor.client import client
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    json_reply,
    result_reply,
)
from tests.docs.pages import ROOT
from tests.docs.prepared_jobs import PreparedJobs
from tests.docs.sample_files import JOBS, write_sample_files
from tests.docs.samples import Sample, TypedCommand, calls, samples, typed_commands
from tests.e2e.commands import Handoff, HandoffInProcess, interrupt
from tests.e2e.test_cli_up import exported
from tests.e2e.test_docs_samples import TRANSCRIPTS, generalized
from tests.running_system import model_environment
from tests.system_users import refused_commands
from tests.waiting import wait_until

RUN_HERE = {".", "celery", "cp", "echo", "handoff", "jq", "mkdir"}
RUN_ELSEWHERE = {
    "curl": "tests/e2e/test_docs_pages.py",
    "docker": "tests/compose",
    "handoff chaos": "tests/chaos",
    "kill": "tests/e2e/test_cli_up.py",
    "make": "tests/test_make_run.py",
    "pip": "tests/package",
    "python": "tests/docs/test_python_commands.py",
    "redis-cli": "tests/docs/test_operations.py",
    "sleep": "tests/e2e/test_cli_up.py",
    "uvicorn": "tests/e2e/test_docs_pages.py",
}
"""Program -> its tests. It needs Docker, a network, a server or many minutes."""
LINES_RUN_ELSEWHERE = {
    "handoff up --worker researcher=2 --flower": "tests/e2e/test_cli_up.py",
    "handoff up --worker researcher=3 --flower --serve-port 8400": ("tests/e2e/test_cli_up.py"),
    "handoff up --keys ./keys": "tests/e2e/test_cli_keys.py",
    "handoff specialists --accept-mcp specialists/meteorologist.md": (
        "tests/e2e/test_mcp_servers.py"
    ),
    'handoff run "What is the weather in Bonn tomorrow?" --specialists ./specialists': (
        "tests/e2e/test_mcp_servers.py"
    ),
    "handoff worker meteorologist --specialists ./specialists": "tests/e2e/test_mcp_servers.py",
    (
        'handoff run "Which licence has Qdrant?" --docs examples/vector-databases'
        " --workflow librarian.yaml"
    ): "tests/e2e/test_memory.py",
    "handoff approve j-k5tq2wbz7x3mhd4n --question 14": "tests/e2e/test_call_approvals.py",
    (
        "handoff approve j-k5tq2wbz7x3mhd4n --question 14"
        """ --arguments '{"to": "ann@example.com"}'"""
    ): "tests/e2e/test_call_approvals.py",
    'handoff reject j-k5tq2wbz7x3mhd4n --question 15 --note "Not to this customer."': (
        "tests/e2e/test_call_approvals.py"
    ),
}
"""Line -> the tests of its options. Each of its processes takes seconds of processor time, or it
needs a job that asks about a tool call.
"""
STAYING = {"celery", "handoff serve", "handoff supervisor", "handoff up", "handoff worker"}
"""Commands that run until Ctrl-C."""
EXIT_CODES = {
    ("docs/reference/command-line.md", "handoff submit"): BAD_INPUT,
}
"""Page and command -> the exit code that the page states, if it is not 0."""
INTERRUPTED_WORKER = 1
"""Celery's exit code of a worker after Ctrl-C."""
JOB = re.compile(r"JOB|j-(?:[a-z2-7]{16}|[0-9a-f]{12})")
LETTER = "1f0c2a9e"
API_TOKEN = "5d1f0c2a9e77"
FLOWER_FILE = "/var/lib/flower/state"
EVALUATION = "NAME"
OTHER_WORDS = {"check_0107.1": "check_0001.1"}
"""Word of a sample -> the word that fits the prepared job."""
WRONG_JOBS = '{"request": "Summarise the risks"}\n{"reqest": "Summarise the risks"}\n'
"""`jobs.jsonl` of the page that shows the error."""


def names_of(words: Sequence[str]) -> set[str]:
    """Return the program of these words, and the program with its command."""
    return {words[0], " ".join(words[:2])}


def runs_elsewhere(words: Sequence[str]) -> bool:
    is_program = not names_of(words).isdisjoint(RUN_ELSEWHERE)
    lines = [shlex.split(line) for line in LINES_RUN_ELSEWHERE]
    return is_program or list(words) in lines


def console_samples() -> dict[Sample, list[TypedCommand]]:
    """Return the commands of each sample, without commands that another sample has.

    Of equal commands, the first one with output is kept.
    """
    console = [sample for sample in samples() if sample.language == "console"]
    commands = list(chain.from_iterable(map(typed_commands, console)))
    seen: set[object] = {(content_of(command), ()) for command in commands if command.output}
    new: dict[Sample, list[TypedCommand]] = {}
    for command in commands:
        content = (content_of(command), command.output)
        if content not in seen and not is_transcript(command):
            seen.add(content)
            new.setdefault(command.sample, []).append(command)
    return new


def content_of(command: TypedCommand) -> tuple[object, ...]:
    """Return the line, and the variables of this project. No other variable changes a command."""
    own = [pair for pair in command.environment if pair[0].startswith("HANDOFF_")]
    return (command.line, *own)


def is_transcript(command: TypedCommand) -> bool:
    """Return whether the tests of the transcripts run the command and compare its output."""
    return command.sample in TRANSCRIPTS and names_of(command.line.split()) >= {"handoff run"}


COMMANDS = console_samples()


def has_command_to_run(sample: Sample) -> bool:
    lines = [command.line for command in COMMANDS[sample]]
    return not all(map(runs_elsewhere, chain.from_iterable(map(calls, lines))))


class Celery(Handoff):
    """Plain Celery, in the folder of the command."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "celery", *arguments]


def set_option(arguments: list[str], option: str, value: int) -> None:
    """Give an option this value in place of the value of the sample, if it has one."""
    if option in arguments:
        place = arguments.index(option)
        del arguments[place : place + 2]
    arguments += [option, str(value)]


@dataclass
class Reader:
    """A reader who types the commands in a folder with the files that they name."""

    folder: Path
    shell: dict[str, str]
    """The variables that `handoff up` prints for the other terminal."""
    prepared: PreparedJobs
    model: MessagesServer
    """The model of private runs, which name their own specialists."""
    capture: pytest.CaptureFixture[str] | None = None
    """The fixture `capfd` of the test that reads the output."""
    evaluation: str = "eval-of-this-test"
    """The name that the last `handoff eval` printed, or a new name."""

    def run(self, command: TypedCommand) -> CompletedProcess[str]:
        """Run the programs of a line in order. Each reads the output of the program before it."""
        done = CompletedProcess[str]([], OK, "", "")
        for typed in calls(command.line):
            if runs_elsewhere(typed):
                continue
            words = [self.fitting(typed, word) for word in typed]
            done = self.run_program(words, self.variables(command, words), done.stdout)
            if done.returncode != OK:
                break
        return done

    def run_program(
        self, words: Sequence[str], variables: dict[str, str], stdin: str
    ) -> CompletedProcess[str]:
        program, *arguments = words
        if not names_of(words).isdisjoint(STAYING):
            return self.run_until_ready(words, variables)
        if program == "handoff":
            if arguments[:2] == ["cancel", "--all"]:
                arguments.append("--yes")  # a reader confirms it on a terminal
            handoff = self.handoff(arguments, variables)
            done = handoff.run(*arguments, stdin=stdin, **variables)  # type: ignore[arg-type]
            if name := re.search(r"^(\S+): it costs", done.stderr, re.MULTILINE):
                self.evaluation = name[1]
            return done
        if program == "jq" and shutil.which("jq") is None:
            json.loads(stdin)
            return CompletedProcess(words, OK, stdin, "")
        return subprocess.run(
            ["bash", "-c", shlex.join(words)],
            input=stdin,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def handoff(self, arguments: Sequence[str], variables: dict[str, str]) -> Handoff:
        """Return the command, in the test process unless it starts a process. Such a process is a
        private system, a console or the one that loads the user's own files. The imports of
        `handoff mcp` would take a second in the test process.
        """
        is_private = "HANDOFF_REDIS_URL" not in variables
        if is_private or not {"--specialists", "--tools", "--open", "mcp"}.isdisjoint(arguments):
            return Handoff(self.folder)
        assert self.capture is not None
        return HandoffInProcess(self.folder, capture=self.capture)

    def run_until_ready(
        self, words: Sequence[str], variables: dict[str, str]
    ) -> CompletedProcess[str]:
        """Start a command that stays, wait until it is ready, and press Ctrl-C."""
        program, *arguments = words
        commands = (Celery if program == "celery" else Handoff)(self.folder)
        port = find_free_port()
        if "--flower" in arguments:
            set_option(arguments, "--flower-port", port)
        if "serve" in arguments:
            set_option(arguments, "--port", port)
        if "up" in arguments:
            set_option(arguments, "--serve-port", find_free_port())
        if "flower" in arguments:
            variables |= {
                "FLOWER_PORT": str(port),
                "FLOWER_BASIC_AUTH": "admin:a-word-of-this-test",
            }
        elif "up" not in arguments:
            variables |= {"HANDOFF_READY_FILE": str(self.ready_file)}
        self.ready_file.unlink(missing_ok=True)
        with commands.started(*arguments, **variables) as process:
            wait_until(
                lambda: process.poll() is not None or self.is_ready(commands, arguments, port),
                expected=f"{shlex.join(words)}, ready or ended,",
            )
            assert self.is_ready(commands, arguments, port), commands.read("err")
            exit_code = interrupt(process)
        return CompletedProcess(words, exit_code, commands.read("out"), commands.read("err"))

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready"

    def is_ready(self, commands: Handoff, arguments: Sequence[str], port: int) -> bool:
        if "up" in arguments:
            return "Ctrl-C stops everything" in commands.read("err")
        if "serve" in arguments:
            return "/v1/reference" in commands.read("err")
        if "flower" in arguments:
            return answers(port)
        return self.ready_file.exists()

    def key_of_app(self, words: Sequence[str]) -> str:
        """Return the private key of a process of plain Celery, which takes no other key."""
        identity = "supervisor" if "handoff_queue.supervisor.app" in words else "worker"
        return str(find_private_key_file(Path(self.shell["HANDOFF_KEYS"]).parent, identity))

    def fitting(self, words: Sequence[str], word: str) -> str:
        """Return the word, or the thing that it stands for in a sample."""
        if JOB.fullmatch(word):
            return self.prepared.fitting(words)
        if word == LETTER:
            return self.prepared.dead_letter()
        if word == API_TOKEN:
            return self.prepared.api_token()
        if word == EVALUATION:
            return self.evaluation
        word = word.replace(FLOWER_FILE, str(self.folder / "flower-state"))
        return OTHER_WORDS.get(word, word)

    def variables(self, command: TypedCommand, words: Sequence[str]) -> dict[str, str]:
        """Return the variables of the shell: those of the sample, with addresses of this test."""
        url = self.shell["HANDOFF_REDIS_URL"]
        root = url.removesuffix("/0")
        addresses = {
            "HANDOFF_REDIS_URL": url,
            "HANDOFF_HOST_BROKER_URL": f"{root}/1",
            "HANDOFF_HOST_RESULT_URL": f"{root}/2",
        }
        variables = {name: addresses.get(name, value) for name, value in command.environment}
        if words[1] == "run" and "--specialists" in words:
            return variables | model_environment(self.model, HANDOFF_MODE="auto")
        if words[1] != "up":
            variables |= self.shell
        if words[0] == "celery":
            variables["HANDOFF_SIGNING_KEY"] = self.key_of_app(words)
        return {"HANDOFF_MODE": "single", "COLUMNS": "200"} | variables


def answers(port: int) -> bool:
    """Return whether Flower takes requests. It opens its port before it heeds Ctrl-C."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=10).close()
    except OSError:
        return False
    return True


def clerk(request: Json) -> Reply:
    """Play the model of a job for the specialist `orders`."""
    if "route" in answer_properties(request):
        return json_reply({"route": "single", "specialist": "orders", "why": "It is about orders."})
    return result_reply({"summary": "Both are open.", "orders": []})


@pytest.fixture
def reader(module_reader: Reader, capfd: pytest.CaptureFixture[str]) -> Reader:
    module_reader.capture = capfd
    return module_reader


@pytest.fixture(scope="module")
def module_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader in the other terminal of `handoff up`."""
    folder = tmp_path_factory.mktemp("docs")
    write_sample_files(folder)
    first_terminal = Handoff(tmp_path_factory.mktemp("system"))
    with (
        first_terminal.started("up", "--no-serve", HANDOFF_OFFLINE="true") as system,
        MessagesServer(clerk) as model,
    ):
        shell = exported(first_terminal)
        keys, key = Path(shell["HANDOFF_KEYS"]), Path(shell["HANDOFF_SIGNING_KEY"])
        settings = Settings(offline=True, keys=keys, signing_key=key)
        jobs = client.connect(shell["HANDOFF_REDIS_URL"], settings)
        prepared = PreparedJobs(jobs, folder)
        prepared.run("How does HNSW work?")
        export = Handoff(folder).run("export", prepared.ended, "-o", "job.json", **shell)
        assert export.returncode == OK, export.stderr
        yield Reader(folder, shell, prepared, model)
        assert find_keys_without_expiry(jobs.store.connection.redis) == []
        assert not (refused := refused_commands(jobs.store.connection.redis)), refused
        jobs.store.connection.close()
        assert interrupt(system) == OK


@pytest.mark.slow
@pytest.mark.parametrize(
    "sample", [sample for sample in COMMANDS if has_command_to_run(sample)], ids=str
)
def test_the_commands_of_a_sample_work(reader: Reader, sample: Sample) -> None:
    (reader.folder / "jobs.jsonl").write_text(jobs_file(sample))
    for command in COMMANDS[sample]:
        done = reader.run(command)

        assert done.returncode == expected_exit_code(command), f"{command}: {done}"
        assert "Traceback" not in done.stdout + done.stderr, command
        printed = {generalized(line) for line in (done.stdout + done.stderr).splitlines()}
        assert {generalized(line) for line in command.output} <= printed, command


def expected_exit_code(command: TypedCommand) -> int:
    words = calls(command.line)[0]
    is_worker = not {"supervisor", "worker"}.isdisjoint(words)
    if is_worker and not names_of(words).isdisjoint(STAYING):
        return INTERRUPTED_WORKER
    return EXIT_CODES.get((command.sample.page, " ".join(words[:2])), OK)


def jobs_file(sample: Sample) -> str:
    if (sample.page, "handoff submit") in EXIT_CODES:
        return WRONG_JOBS
    return JOBS


def test_every_program_of_the_samples_is_run_by_a_test() -> None:
    lines = [command.line for command in chain.from_iterable(COMMANDS.values())]
    programs = set()
    for words in chain.from_iterable(map(calls, lines)):
        programs |= names_of(words) & RUN_ELSEWHERE.keys() or {words[0]}

    assert programs == RUN_HERE | RUN_ELSEWHERE.keys()
    assert LINES_RUN_ELSEWHERE.keys() <= set(lines)
    tests = [*RUN_ELSEWHERE.values(), *LINES_RUN_ELSEWHERE.values()]
    assert all((ROOT / path).exists() for path in tests)
