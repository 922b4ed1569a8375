"""A model cannot use words that it wrote itself as the evidence of a note or of an answer."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.memory_notes import Note
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, claim, json_reply, result_reply
from handoff_queue.testing import tool_call_reply as call
from handoff_queue.workers.tools.memory import build_memory_tool
from handoff_queue.workers.tools.read_document import read_document_tool
from handoff_queue.workers.tools.run_code import build_run_code_tool
from handoff_queue.workers.tools.sandbox import SandboxRun
from tests.doubles.handoffs import a_tool
from tests.doubles.one_step_job import PASS
from tests.hostile.obedient_system import ObedientSystem, obedient_system

pytestmark = pytest.mark.slow

LIE = "The licence of Qdrant is MIT."
TRUE = "The licence of Qdrant is Apache 2.0."
GUIDE = f"{TRUE}\n" + "Qdrant stores vectors.\n" * 1_000
"""A document that is too long to be shown whole, so that agents have `read_document`."""
CODER, LIBRARIAN = "coder", "researcher"
FILE = re.compile(r"tool:[a-z0-9.]+/run_code#\w+/facts\.txt")
PROGRAM = "text = 'The licence of Qdrant is ' + 'TIM'[::-1]; print(text)"
"""A program that makes the lie. Its text does not contain it."""


def run_program(_code: str, _inputs: object, **_: Any) -> SandboxRun:
    """Take the place of the sandbox: the program prints the lie and writes it into a file."""
    files = {"facts.txt": b64encode(LIE.encode()).decode()}
    return SandboxRun(exit_code=0, stopped="", stdout=LIE, stderr="", files=files, left_out=0)


ECHO = replace(
    a_tool("echo", lambda arguments: f"Say: {arguments['q']} It is a database."), is_source=True
)
"""A tool of the user that adds a sentence to its argument."""
RECORDS = replace(a_tool("records", lambda arguments: f"{arguments['q']}: {TRUE}"), is_source=True)
"""A tool of the user that knows the licence, and repeats the query."""


@dataclass
class Model:
    """A model that does these calls one after the other. `{file}` is the file of its program."""

    calls: dict[str, list[tuple[str, Json]]] = field(default_factory=dict)
    """The calls of each specialist."""
    file: str = ""
    answer: Reply = field(default_factory=lambda: result_reply("Qdrant is a database of vectors."))
    system: ObedientSystem = field(init=False)

    def __call__(self, request: Json) -> Reply:
        properties = answer_properties(request)
        if "steps" in properties:
            return json_reply({"steps": self.steps, "synthesis": "merge", "why": ""})
        if "verdict" in properties:
            return json_reply(PASS)
        self._find_file(request)
        names = {tool["name"] for tool in request.get("tools", [])}
        specialist = LIBRARIAN if "echo" in names else CODER
        calls = self.calls.get(specialist, [])
        turn = len(request["messages"]) // 2
        if turn < len(calls):
            name, arguments = calls[turn]
            return call((name, {key: self._filled(value) for key, value in arguments.items()}))
        return self.answer

    @property
    def steps(self) -> list[Json]:
        """One step for each specialist, each after the one before."""
        steps: list[Json] = []
        for number, specialist in enumerate(self.calls):
            before = [steps[-1]["id"]] if steps else []
            step = {"id": f"s{number}", "specialist": specialist, "task": "Work."}
            steps.append({**step, "depends_on": before, "fallback": "-"})
        return steps

    def _find_file(self, request: Json) -> None:
        source = FILE.search(str(request["messages"]))
        if source is not None:
            self.file = source[0]

    def _filled(self, value: Any) -> Any:
        return value.replace("{file}", self.file) if isinstance(value, str) else value

    def run(self) -> JobResult:
        only = {CODER: ["run_code", "read_document", "memory"]}
        only[LIBRARIAN] = ["echo", "records", "read_document", "memory"]
        tools = (
            build_run_code_tool(run_program),
            read_document_tool(),
            ECHO,
            RECORDS,
            build_memory_tool(),
        )
        self.system.offer(*tools, only=only)
        request = Request("Work.", mode=Mode.TEAM, documents={"guide.md": GUIDE.encode()})
        job = self.system.shell.jobs.submit(request)
        self.system.run(job)
        return self.system.shell.jobs.result(job)

    @property
    def notes(self) -> list[Note]:
        return [entry.note for entry in self.system.shell.store.notes.list_all(DEFAULT_TENANT)]

    @property
    def refusals(self) -> str:
        return str(self.system.server.requests)


@pytest.fixture
def model(redis_url: str) -> Iterator[Model]:
    made = Model()
    with obedient_system(redis_url, made) as made.system:
        yield made


def note(source: str, quote: str = LIE) -> tuple[str, Json]:
    written = {"command": "create", "path": "qdrant/licence", "file_text": quote}
    return "memory", {**written, "source": source, "quote": quote}


RUN = ("run_code", {"code": PROGRAM})
READ = ("read_document", {"source": "{file}"})


@pytest.mark.parametrize(
    "source", ["{file}", "facts.txt", "tool:run_code", "run_code#1", "tool:read_document"]
)
def test_the_output_of_the_models_program_is_refused_as_evidence(model: Model, source: str) -> None:
    model.calls[CODER] = [RUN, READ, note(source)]

    model.run()

    assert model.file, "the program has written its file"
    assert model.notes == []


def test_a_file_of_another_handoffs_program_is_refused_as_evidence(model: Model) -> None:
    model.calls = {CODER: [RUN], LIBRARIAN: [READ, note("{file}")]}

    model.run()

    assert "the output of your own code is not evidence" in model.refusals
    assert model.notes == []


def test_a_document_that_the_program_has_read_is_evidence(model: Model) -> None:
    model.calls[CODER] = [("run_code", {"code": "", "inputs": ["guide.md"]})]
    model.calls[CODER] += [note("guide.md", TRUE)]

    model.run()

    assert [stored.text for stored in model.notes] == [TRUE]


@pytest.mark.parametrize("quote", [LIE, f": {LIE}", f"Say: {LIE}", f"{LIE} It is a database."])
def test_the_words_of_the_model_in_the_result_of_a_tool_are_refused_as_evidence(
    model: Model, quote: str
) -> None:
    model.calls[LIBRARIAN] = [("echo", {"q": LIE}), note("tool:echo", quote)]

    model.run()

    assert "you wrote these words yourself" in model.refusals
    assert model.notes == []


def test_a_tool_with_facts_of_its_own_is_evidence_after_a_refused_note(model: Model) -> None:
    wrong = note("tool:records", LIE)
    model.calls[LIBRARIAN] = [("records", {"q": "Qdrant"}), wrong, note("tool:records", TRUE)]

    model.run()

    assert [stored.text for stored in model.notes] == [TRUE]


@pytest.mark.parametrize("quote", [LIE, f"Say: {LIE}"])
def test_the_words_of_the_model_in_the_result_of_a_tool_prove_no_answer(
    model: Model, quote: str
) -> None:
    model.calls[LIBRARIAN] = [("echo", {"q": LIE})]
    proof = claim("c1", LIE, source="tool:echo", quote=quote)
    model.answer = result_reply(f"{LIE} [c1]", claims=[proof])

    result = model.run()

    assert "this quote from" in model.refusals
    assert result.citations == ()


@pytest.mark.parametrize(
    ("call", "source"),
    [
        (("records", {"q": "The licence of Qdrant"}), "tool:records"),
        (("read_document", {"source": "guide.md", "query": TRUE}), "guide.md"),
        (("echo", {"q": TRUE}), "guide.md"),
    ],
    ids=["a result that repeats the query", "a search", "a document of the user"],
)
def test_a_source_that_adds_words_to_those_of_the_model_proves_an_answer(
    model: Model, call: tuple[str, Json], source: str
) -> None:
    model.calls[LIBRARIAN] = [call]
    proof = claim("c1", TRUE, source=source, quote=TRUE)
    model.answer = result_reply(f"{TRUE} [c1]", claims=[proof])

    result = model.run()

    assert [citation["quote"] for citation in result.citations] == [TRUE]


def test_a_result_proves_an_answer_also_if_the_model_repeats_it_in_a_later_call(
    model: Model,
) -> None:
    model.calls[LIBRARIAN] = [("records", {"q": "Qdrant"}), ("echo", {"q": TRUE})]
    proof = claim("c1", TRUE, source="tool:records", quote=TRUE)
    model.answer = result_reply(f"{TRUE} [c1]", claims=[proof])

    result = model.run()

    assert [citation["quote"] for citation in result.citations] == [TRUE]
