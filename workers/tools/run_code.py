"""`run_code`: the tool that runs Python code of the model in a sandbox of the worker.

A specialist has it with `sandbox: local` in its file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.documents.media_types import PLAIN
from handoff_queue.shared.types.origins import RUN_CODE, build_tool_origin
from handoff_queue.workers.tools.read_document import open_source
from handoff_queue.workers.tools.sandbox import SandboxRun, run_in_sandbox
from handoff_queue.workers.tools.sandbox_limits import SandboxLimits
from handoff_queue.workers.tools.tool_arguments import Arguments, make_builtin_tool

MAX_CODE_CHARS = 100_000
MAX_INPUTS = 16
MAX_INPUT_BYTES = 8_000_000
"""Bytes of all input files of a call."""
_LIMITS = SandboxLimits()
_DESCRIPTION = (
    "Run a Python program (standard library, no network) in a new sandbox, and return its exit code"
    " and the end of its output. The folder `inputs` holds the text of each document in"
    " `inputs`, under the last part of its path. Text files that the program writes into the folder"
    " `outputs` are stored: the result names each with its source and its digest, for `inputs` of"
    f" another call or read_document. Nothing else is kept. Limits: {_LIMITS.seconds} s,"
    f" {_LIMITS.memory_bytes // 1_000_000} MB of memory, {_LIMITS.processes} processes."
)
MAX_PRINTED_CHARS = 8_000
"""Characters of each of stdout and stderr that the model sees: the last ones."""
_ID_CHARS = 8
_MAX_NAME_BYTES = 100
_NOT_IN_A_NAME = re.compile(r"[^\w.-]")
_NOT_IN_A_SOURCE = re.compile(r"[^\w .+-]|^\W")
"""Characters of a part of an output file's path that a source does not have."""
_MAX_PARTS = 6
"""Most folders and names in the path of a file that the code writes."""
_MAX_PART_CHARS = 100
"""Most characters of one of these names."""
_STOPPED = {
    "time": f"ended after {_LIMITS.seconds} s",
    "output": f"ended after {_LIMITS.printed_bytes:,} bytes of output",
}


class _Run(Arguments):
    code: str = Field(max_length=MAX_CODE_CHARS, description="The whole program.")
    inputs: list[str] = Field(
        default=[],
        max_length=MAX_INPUTS,
        description="Documents that the program reads: each a path as listed, or a digest.",
    )


Runner = Callable[..., SandboxRun]


def build_run_code_tool(run: Runner = run_in_sandbox) -> Tool:
    """Return the tool.

    Args:
        run: runs code in a sandbox, as `run_in_sandbox` does.
    """

    def run_code(arguments: _Run, context: ToolContext) -> str:
        inputs = _collect_inputs(arguments.inputs, context)
        contents = {name: text.encode() for name, (_, text) in inputs.items()}
        if sum(map(len, contents.values())) > MAX_INPUT_BYTES:
            raise ToolFailed(f"the inputs have more than {MAX_INPUT_BYTES:,} bytes: name fewer")
        sandbox_run = run(arguments.code, contents, is_abandoned=context.is_abandoned)
        answer = _build_answer(sandbox_run, context)
        if inputs:
            answer["inputs"] = {f"inputs/{name}": path for name, (path, _) in inputs.items()}
        return json.dumps(answer, ensure_ascii=False)

    origins = (build_tool_origin(RUN_CODE),)
    tool = make_builtin_tool(RUN_CODE, _DESCRIPTION, _Run, run_code, origins=origins)
    return replace(tool, is_source=True, ends_when_abandoned=True)


def _collect_inputs(sources: Sequence[str], context: ToolContext) -> dict[str, tuple[str, str]]:
    """Return the source and the text of each document by the name of its file.

    Raises:
        ToolFailed: there is no such document.
    """
    inputs: dict[str, tuple[str, str]] = {}
    for source in dict.fromkeys(sources):
        document = open_source(source, context)
        name = _shorten_file_name(document.path)
        while name in inputs:
            name = f"{len(inputs)}-{name}"
        inputs[name] = document.path, context.text_of(document.digest)
    return inputs


def _shorten_file_name(path: str) -> str:
    """Return the last part of a path in at most `_MAX_NAME_BYTES` bytes."""
    name = _NOT_IN_A_NAME.sub("_", path.rstrip("/").rpartition("/")[2])
    end = name.encode()[-_MAX_NAME_BYTES:].decode(errors="ignore")
    return end.lstrip(".") or "input"


def _build_answer(run: SandboxRun, context: ToolContext) -> dict[str, Any]:
    """Store the output files, and return the result of the call."""
    answer: dict[str, Any] = {"exit_code": run.exit_code}
    if run.stopped:
        answer["stopped"] = _STOPPED[run.stopped]
    answer["stdout"] = run.stdout[-MAX_PRINTED_CHARS:]
    answer["stderr"] = run.stderr[-MAX_PRINTED_CHARS:]
    left_out = run.left_out
    files: list[dict[str, Any]] = []
    names: set[str] = set()
    call = f"tool:{context.handoff_id}/{RUN_CODE}#{context.call_id[-_ID_CHARS:]}"
    for name, data in _get_contents(run).items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            left_out += 1
            continue
        stored_name = _build_stored_name(name)
        if stored_name is None or len(files) == _LIMITS.output_files:
            left_out += 1
            continue
        while stored_name in names:
            stored_name = f"{len(names)}-{stored_name}"
        names.add(stored_name)
        source = f"{call}/{stored_name}"
        document = context.keep_document(source, PLAIN, text)
        file: dict[str, Any] = {"source": source, "digest": document.digest, "bytes": len(data)}
        if stored_name != name:
            file["written_as"] = f"outputs/{name}"
        files.append(file)
    answer["files"] = files
    if left_out:
        answer["left_out"] = (
            f"{left_out} files: not text, not plain, too large, or more than"
            f" {_LIMITS.output_files} files; or a part of the path has more than {_MAX_PART_CHARS}"
            " characters, or is not printable"
        )
    return answer


def _build_stored_name(path: str) -> str | None:
    """Return the path under which an output file is stored: other characters than letters, digits,
    spaces and `_.+-` become `_`. None: the path is not one of a program in a sandbox, or is too
    long.
    """
    parts = path.split("/")
    if len(parts) > _MAX_PARTS or not path.isprintable():
        return None
    names: list[str] = []
    for part in parts:
        if part in ("", ".", "..") or len(part) > _MAX_PART_CHARS:
            return None
        names.append(_NOT_IN_A_SOURCE.sub("_", part))
    return "/".join(names)


def _get_contents(run: SandboxRun) -> dict[str, bytes]:
    """Return the contents of the output files by path.

    Raises:
        ToolFailed: the files cannot be read, or are too large.
    """
    try:
        contents = run.decode_contents()
    except ValueError:
        raise ToolFailed("the sandbox returned files that cannot be read") from None
    if sum(map(len, contents.values())) > _LIMITS.output_bytes:
        raise ToolFailed(
            f"the files have more than {_LIMITS.output_bytes:,} bytes: write smaller or fewer files"
        )
    return contents
