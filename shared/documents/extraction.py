"""Conversion of a document's bytes to the text that is stored, indexed, shown and cited.

A separate process reads hostile or heavy files. A PDF, or a page whose deep nesting needs minutes
to parse, can crash or block this process, but never a worker or the CLI. One process reads many
files, one after another, with a time limit for each. It gets open files from its parent and opens
no path.

`python -m handoff_queue.shared.documents.extraction SECONDS` is that process. It reads the files as
JSON lines from stdin up to an empty line, and writes one JSON line to stdout for each. It ends when
its stdin closes, because its parent has ended then.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from handoff_queue.shared.documents.html import extract_html_text, find_declared_charset
from handoff_queue.shared.documents.media_types import (
    PDF,
    DocumentRefused,
    decode,
    is_html,
    is_text,
    normalize_text,
)
from handoff_queue.shared.documents.pdf import extract_pdf_text
from handoff_queue.shared.text.unicode_text import remove_invisible

TIMEOUT_S = 30
"""Seconds for one file. A book of 1,000 pages takes about ten seconds."""
MEMORY_BYTES = 1 << 30
"""Bytes of address space that the reading process may use."""
MAX_OPEN = 100
"""Files that one process gets. Each is open until the process ends."""
_REMEDY = "save it again with a PDF program, or leave it out"
_LIGHT_HTML_BYTES = 100_000
"""Bytes of the largest page that this process parses. The worst page of this size, which has
only opening tags, takes about a second. A separate process parses larger pages.
"""


def is_heavy(media_type: str, size: int) -> bool:
    """Return whether a file must be read in a separate process."""
    return media_type == PDF or (is_html(media_type) and size > _LIGHT_HTML_BYTES)


def extract(data: bytes, media_type: str, charset: str | None = None) -> str:
    """Return the visible text of one document in memory. HTML and PDF are converted; the text of
    Markdown, code and data is not changed. Data that begins like a PDF counts as PDF.

    Args:
        charset: encoding that the sender declares, if any.

    Raises:
        DocumentRefused: the document is binary, broken, or of a kind that cannot be read.
    """
    if data.startswith(b"%PDF-"):
        media_type = PDF
    if is_heavy(media_type, len(data)):
        return extract_text(data, media_type, charset)
    if is_html(media_type):
        html = decode(data, charset or find_declared_charset(data))
        return remove_invisible(normalize_text(extract_html_text(html)))
    if not is_text(media_type):
        raise DocumentRefused(f"is {media_type}, which cannot be read")
    return remove_invisible(decode(data, charset))


@dataclass(frozen=True, slots=True)
class HeavyFile:
    """A PDF or HTML file."""

    open: Callable[[], IO[bytes]]
    """Opens the file. It raises `DocumentRefused` if the file cannot be read."""
    media_type: str
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """An open file in the reading process."""

    descriptor: int
    media_type: str
    charset: str | None


def extract_texts(
    files: Sequence[HeavyFile], *, timeout_s: int = TIMEOUT_S
) -> Iterator[str | DocumentRefused]:
    """Yield the text or the error of each file, in the given order. If the process dies, only
    its current file gives an error, and a new process reads the rest.
    """
    finished_files = 0
    while finished_files < len(files):
        batch = files[finished_files : finished_files + MAX_OPEN]
        for outcome in _extract_in_one_process(batch, timeout_s):
            yield outcome
            finished_files += 1


def extract_text(
    data: bytes, media_type: str, charset: str | None = None, *, timeout_s: int = TIMEOUT_S
) -> str:
    """Return the text of one document that is in memory.

    Raises:
        DocumentRefused: the document has no readable text.
    """
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        (outcome,) = extract_texts(
            [HeavyFile(lambda: file, media_type, charset)], timeout_s=timeout_s
        )
    if isinstance(outcome, DocumentRefused):
        raise outcome
    return outcome


def _extract_in_one_process(
    files: Sequence[HeavyFile], timeout_s: int
) -> Iterator[str | DocumentRefused]:
    """Yield the outcomes of files until the process has read all files or has died. The last
    outcome is then the error of the file that it was reading.
    """
    with ExitStack() as open_files:
        requests: list[_OpenFile | DocumentRefused] = []
        for file in files:
            try:
                stream = open_files.enter_context(file.open())
            except DocumentRefused as reason:
                requests.append(reason)
            else:
                requests.append(_OpenFile(stream.fileno(), file.media_type, file.charset))
        yield from _iterate_outcomes(requests, timeout_s)


def _iterate_outcomes(
    requests: Sequence[_OpenFile | DocumentRefused], timeout_s: int
) -> Iterator[str | DocumentRefused]:
    """Yield each refusal, and the outcome of each open file, in the given order."""
    files: list[_OpenFile] = []
    for request in requests:
        if isinstance(request, _OpenFile):
            files.append(request)
    with _start_reading_process(files, timeout_s) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for file in files:
                process.stdin.write(json.dumps(asdict(file)).encode() + b"\n")
            process.stdin.write(b"\n")
            process.stdin.flush()
            for request in requests:
                if isinstance(request, DocumentRefused):
                    yield request
                    continue
                line = process.stdout.readline()
                if not line.endswith(b"\n"):
                    yield _describe_death(process.wait(), timeout_s)
                    return
                yield _parse_outcome(json.loads(line))
        except BrokenPipeError:
            yield _describe_death(process.wait(), timeout_s)
        finally:
            process.kill()


def _start_reading_process(files: Sequence[_OpenFile], timeout_s: int) -> subprocess.Popen[bytes]:
    """Start the process that reads these files, without the secrets of our environment."""
    home = Path(__file__).parents[3]  # the folder of the package handoff_queue
    return subprocess.Popen(
        [sys.executable, "-m", "handoff_queue.shared.documents.extraction", str(timeout_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=home,
        env={"PYTHONPATH": str(home), "PYTHONIOENCODING": "utf-8"},
        pass_fds=[file.descriptor for file in files],
    )


def _parse_outcome(answer: dict[str, str]) -> str | DocumentRefused:
    """Return the text or the error in an answer of the reading process."""
    if "refused" in answer:
        return DocumentRefused(answer["refused"])
    return remove_invisible(str(answer["text"]))


def _describe_death(code: int, timeout_s: int) -> DocumentRefused:
    """Return the error of the file at which the process ended with this exit code."""
    if code == -signal.SIGALRM:
        return DocumentRefused(f"takes longer than {timeout_s} s to read: {_REMEDY}")
    return DocumentRefused(f"crashes its reader (exit {code}): {_REMEDY}")


def _extract_answer(file: _OpenFile) -> dict[str, str]:
    """Return the text or the error of one file, in the reading process."""
    try:
        with os.fdopen(file.descriptor, "rb") as stream:
            if file.media_type == PDF:
                return {"text": extract_pdf_text(stream)}
            data = stream.read()
        html = decode(data, file.charset or find_declared_charset(data))
        return {"text": normalize_text(extract_html_text(html))}
    except DocumentRefused as reason:
        return {"refused": str(reason)}
    except OSError as error:
        return {
            "refused": (
                f"cannot be read ({error.strerror}): change its permissions (chmod u+r), or leave"
                " it out"
            )
        }
    except MemoryError:
        return {"refused": f"needs more than {MEMORY_BYTES >> 20} MB to read: {_REMEDY}"}


def _die_with_parent() -> None:
    """End this process when its stdin closes. The parent keeps it open until it ends."""
    while os.read(0, 65_536):
        pass
    os._exit(1)


def main() -> None:
    """Run the reading process."""
    timeout_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files: list[_OpenFile] = []
    for line in itertools.takewhile(str.strip, sys.stdin):
        files.append(_OpenFile(**json.loads(line)))
    threading.Thread(target=_die_with_parent, daemon=True).start()
    for file in files:
        signal.alarm(timeout_s)
        answer = _extract_answer(file)
        signal.alarm(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
