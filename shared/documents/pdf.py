"""PDF to text in a process of its own: a hostile or huge file can cost that process, never a worker or the CLI.

One process reads many files, one after another; each has its own alarm. `python -m shared.documents.pdf` is that process: paths as
JSON lines on stdin up to an empty line, one JSON line on stdout for each. It ends when its stdin closes: nobody is there any more.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.documents.decoding import tidied
from shared.documents.refused import Refused

TIMEOUT_S = 30
"""One file; a 1,000-page book takes about ten seconds."""
MEMORY_BYTES = 1 << 30
"""Address space of the reading process."""
MOST_CHARS = 20_000_000
"""Of one file's text: a compressed page can unfold to gigabytes."""
_MEND = "open and save it anew, or leave it out"


def pdf_texts(paths: Sequence[Path], *, timeout_s: int = TIMEOUT_S) -> Iterator[str | Refused]:
    """The text of each file, or why there is none, in the order given. A process that dies takes only its current file with it."""
    done = 0
    while done < len(paths):
        for outcome in _one_process(paths[done:], timeout_s):
            yield outcome
            done += 1


def pdf_text(data: bytes, *, timeout_s: int = TIMEOUT_S) -> str:
    """The text of one PDF that is in memory.

    Raises:
        Refused: no text can be had.
    """
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(data)
        file.flush()
        (outcome,) = pdf_texts([Path(file.name)], timeout_s=timeout_s)
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def _one_process(paths: Sequence[Path], timeout_s: int) -> Iterator[str | Refused]:
    """Outcomes until the process has done all files or died of one (which then is the last outcome)."""
    home = Path(__file__).parents[2]
    command = [sys.executable, "-m", "shared.documents.pdf", str(timeout_s)]
    environment = {"PYTHONPATH": str(home), "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=home, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("".join(json.dumps(str(path)) + "\n" for path in paths).encode() + b"\n")
            process.stdin.flush()
            for _ in paths:
                line = process.stdout.readline()
                if not line.endswith(b"\n"):
                    yield _death_of(process.wait(), timeout_s)
                    return
                answer = json.loads(line)
                yield Refused(answer["refused"]) if "refused" in answer else str(answer["text"])
        except BrokenPipeError:
            yield _death_of(process.wait(), timeout_s)
        finally:
            process.kill()


def _death_of(code: int, timeout_s: int) -> Refused:
    if code == -signal.SIGALRM:
        return Refused(f"is a PDF that takes longer than {timeout_s} s to read: {_MEND}")
    return Refused(f"is a PDF that crashes its reader (exit {code}): {_MEND}")


def _text_of(path: str) -> str:
    """Runs in the child.

    Raises:
        Refused: for a reason that a person can act on.
    """
    import pypdf
    from pypdf.errors import PdfReadError

    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Refused("is a PDF with a password: save it without one")
        pages: list[str] = []
        chars = 0
        for page in reader.pages:
            pages.append(tidied(page.extract_text()).strip())
            chars += len(pages[-1])
            if chars > MOST_CHARS:
                raise Refused(f"is a PDF with more than {MOST_CHARS:,} characters: split it")
    except pypdf.errors.DependencyError:
        raise Refused("is an encrypted PDF: save it without protection") from None
    except MemoryError:
        raise Refused(f"is a PDF that needs more than {MEMORY_BYTES >> 20} MB to read: {_MEND}") from None
    except (PdfReadError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, AssertionError) as error:
        raise Refused(f"is a broken PDF ({type(error).__name__}): {_MEND}") from None
    text = "\n\n".join(page for page in pages if page)
    if not text:
        raise Refused("is a PDF without text (scanned?): run text recognition on it first")
    return text


def _die_with_parent() -> None:
    """The parent keeps our stdin open for as long as it lives."""
    while os.read(0, 65_536):
        pass
    os._exit(1)


def main() -> None:
    """Be the reading process."""
    timeout_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    paths = [json.loads(line) for line in itertools.takewhile(str.strip, sys.stdin)]
    threading.Thread(target=_die_with_parent, daemon=True).start()
    for path in paths:
        signal.alarm(timeout_s)
        try:
            answer = {"text": _text_of(path)}
        except Refused as reason:
            answer = {"refused": str(reason)}
        signal.alarm(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
