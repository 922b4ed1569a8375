"""Questions to a person at the terminal, on a real pseudo-terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from handoff_queue.supervisor.cli.display.terminal import confirm, read_terminal_line


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the end of the pseudo-terminal at which the person types."""
    test_end, program_end = os.openpty()
    with os.fdopen(program_end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield test_end
    os.close(test_end)


def test_a_line_that_is_typed_later_is_returned(keyboard: int) -> None:
    typist = threading.Timer(0.05, os.write, (keyboard, b"yes\n"))
    typist.start()
    assert read_terminal_line() == "yes\n"
    typist.join()


def test_a_signal_that_does_not_interrupt_the_read_still_ends_the_question(keyboard: int) -> None:
    """The kernel may deliver Ctrl-C to another thread. The read of the main thread then
    continues.
    """

    def interrupt_then_type() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not is_over.wait(10):
            is_late.set()
            os.write(keyboard, b"late\n")

    is_over, is_late = threading.Event(), threading.Event()
    other = threading.Timer(0.05, interrupt_then_type)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            confirm("Go on?")
    finally:
        is_over.set()
        other.join()
    assert not is_late.is_set()
