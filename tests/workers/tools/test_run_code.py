"""`run_code` gives documents to the code, stores its files, and limits its output."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.tool_calls import run_tool
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.workers.tools.read_document import read_document_tool
from handoff_queue.workers.tools.run_code import (
    MAX_INPUT_BYTES,
    MAX_PRINTED_CHARS,
    build_run_code_tool,
)
from handoff_queue.workers.tools.sandbox import SandboxRun, run_in_sandbox
from tests.needs_sandbox import NEEDS_SANDBOX
from tests.workers.tools.contexts import ToolHarness

SALES = "month,sales\nMay,7\n"


class Sandbox:
    """Takes the place of the sandbox: it notes the inputs of a run, and returns one end."""

    def __init__(self, **fields: Any) -> None:
        end = {"exit_code": 0, "stopped": "", "stdout": "", "stderr": "", "files": {}}
        self.end = SandboxRun(**{**end, "left_out": 0, **fields})
        self.inputs: Mapping[str, bytes] = {}

    def __call__(self, _code: str, inputs: Mapping[str, bytes], **_: Any) -> SandboxRun:
        self.inputs = inputs
        return self.end


def files(**contents: bytes) -> dict[str, str]:
    return {name: b64encode(data).decode() for name, data in contents.items()}


def answer(harness: ToolHarness, sandbox: Sandbox, **arguments: Any) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(
        harness.call(build_run_code_tool(sandbox), code="print()", **arguments)
    )
    return answered


@pytest.mark.parametrize("named", ["data/sales.csv", "sales.csv", compute_digest(SALES)])
def test_an_input_is_a_document_by_its_path_or_its_digest(named: str) -> None:
    sandbox = Sandbox()

    answered = answer(ToolHarness({"data/sales.csv": SALES}), sandbox, inputs=[named])

    assert sandbox.inputs == {"sales.csv": SALES.encode()}
    assert answered["inputs"] == {"inputs/sales.csv": "data/sales.csv"}


def test_two_inputs_of_one_name_have_two_files() -> None:
    sandbox = Sandbox()
    harness = ToolHarness({"a/x.csv": "1", "b/x.csv": "2"})

    answer(harness, sandbox, inputs=["a/x.csv", "b/x.csv"])

    assert sandbox.inputs == {"x.csv": b"1", "1-x.csv": b"2"}


def test_an_input_takes_the_name_of_no_other_input() -> None:
    sandbox = Sandbox()
    harness = ToolHarness({"c/2-x.csv": "1", "a/x.csv": "2", "b/x.csv": "3"})

    answer(harness, sandbox, inputs=["c/2-x.csv", "a/x.csv", "b/x.csv"])

    assert sorted(sandbox.inputs.values()) == [b"1", b"2", b"3"]


def test_the_name_of_an_input_fits_into_a_folder() -> None:
    sandbox = Sandbox()

    answer(ToolHarness({"表" * 90 + ".csv": SALES}), sandbox, inputs=["表" * 90 + ".csv"])

    (name,) = sandbox.inputs
    assert name.endswith("表.csv")
    assert len(name.encode()) <= 255


def test_an_unknown_digest_is_refused() -> None:
    failure = ToolHarness({"a.csv": "1"}).failure(
        build_run_code_tool(Sandbox()), code="", inputs=["0" * 64]
    )

    assert failure == f"no document of this job has the digest {'0' * 64}"


def test_inputs_that_are_too_large_together_are_refused() -> None:
    harness = ToolHarness({"a.txt": "x" * MAX_INPUT_BYTES, "b.txt": "y"})

    failure = harness.failure(build_run_code_tool(Sandbox()), code="", inputs=["a.txt", "b.txt"])

    assert "the inputs have more than 8,000,000 bytes" in failure


def test_an_output_file_is_stored_and_named_by_its_digest_and_size() -> None:
    harness = ToolHarness()

    (file,) = answer(harness, Sandbox(files=files(table=SALES.encode())))["files"]

    assert (file["digest"], file["bytes"]) == (compute_digest(SALES), len(SALES))
    assert harness.kept_documents == {file["source"]: ("text/plain", SALES)}


@pytest.mark.parametrize(
    "contents",
    [
        {"image.png": b"\x89PNG\xff"},
        {"../up": b"x"},
        {"/etc/passwd": b"x"},
        {"a/../up": b"x"},
        {"a\x1b[31m": b"x"},
        {"x" * 500: b"x"},
        {"a//b": b"x"},
    ],
)
def test_a_file_with_a_strange_name_or_without_text_is_left_out(
    contents: dict[str, bytes],
) -> None:
    harness = ToolHarness()

    answered = answer(harness, Sandbox(files=files(**contents)))

    assert answered["files"] == []
    assert answered["left_out"].startswith("1 files")
    assert not harness.kept_documents


def test_a_file_with_a_usual_name_is_stored_under_a_name_for_sources() -> None:
    names = ["a,b.txt", "a;b.txt", "a_b.txt", ".hidden", "-dash.txt", "my (final) größe.csv"]
    harness = ToolHarness()

    answered = answer(harness, Sandbox(files=files(**{name: name.encode() for name in names})))

    stored = [
        file["source"].partition("/run_code#")[2].partition("/")[2] for file in answered["files"]
    ]
    assert stored == [
        "a_b.txt",
        "1-a_b.txt",
        "2-a_b.txt",
        "_hidden",
        "_dash.txt",
        "my _final_ größe.csv",
    ]
    assert [file["written_as"] for file in answered["files"]] == [
        f"outputs/{name}" for name in names
    ]
    assert [text for _, text in harness.kept_documents.values()] == names
    assert "left_out" not in answered


def test_only_the_end_of_a_long_output_is_shown() -> None:
    answered = answer(ToolHarness(), Sandbox(stdout="x" * 20_000 + "end", stopped="output"))

    assert answered["stdout"] == "x" * (MAX_PRINTED_CHARS - 3) + "end"
    assert answered["stopped"] == "ended after 1,000,000 bytes of output"


def test_forged_files_cost_one_result() -> None:
    tool = build_run_code_tool(Sandbox(files={"a": "not base64!"}))

    assert "cannot be read" in ToolHarness().failure(tool, code="")


def test_the_result_and_its_files_have_the_origin_of_the_tool() -> None:
    harness = ToolHarness()
    tool = build_run_code_tool(Sandbox(files=files(table=b"x")))
    call = {"id": "toolu_1", "name": "run_code", "input": {"code": ""}}

    observed = run_tool(call, {"run_code": tool}, harness.context)

    assert observed.origins == ("tool run_code",)
    (source,) = harness.kept_documents
    page = Document(path=source, digest=compute_digest("x"), media_type="text/plain", chars=1)
    harness.context = replace(harness.context, load_fetched_pages=lambda: (page,))
    assert harness.output(read_document_tool(), source=source).origins == ("tool run_code",)


@NEEDS_SANDBOX
def test_code_reads_its_inputs_and_writes_its_outputs() -> None:
    harness = ToolHarness({"data/sales.csv": SALES})
    code = "open('outputs/copy.csv', 'w').write(open('inputs/sales.csv').read())\nprint('done')"

    answered = json.loads(
        harness.call(build_run_code_tool(run_in_sandbox), code=code, inputs=["data/sales.csv"])
    )

    assert (answered["exit_code"], answered["stdout"]) == (0, "done\n")
    assert answered["files"][0]["digest"] == compute_digest(SALES)
