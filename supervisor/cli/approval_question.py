"""Ask the person at the terminal the question that a job waits for, and send the answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.supervisor.cli.display.terminal import print_message, print_progress, stderr
from handoff_queue.supervisor.cli.display.terminal_input import line_of_terminal
from handoff_queue.supervisor.text.sanitizing import plain

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.lifecycle.state import Question


def ask_in_place(
    jobs: Client, job_id: JobId, question: Question, *, is_private: bool = False
) -> None:
    """Show a question of the job, read the answer and send it.

    Args:
        is_private: True if no other command can reach the job.
    """
    from handoff_queue.supervisor.cli.display.answer import account
    from handoff_queue.supervisor.cli.display.job_report import readable

    result = jobs.result(job_id)
    draft = None
    for approval in result.approvals:
        if approval["version"] == question.version:
            draft = approval["draft"]
            break
    console = stderr()
    if question.what is ApprovalOf.PLAN:
        print_progress(readable(result.plan, console.width))
    else:
        console.print(account(result, is_private=is_private))
    if isinstance(draft, str):
        print_progress(f"\n{plain(draft)}\n")
    elif draft is not None:
        print_progress(f"\n{readable(draft, console.width)}\n")
    print_progress(
        f"{job_id} waits for an approval of its {_subject(question)}. y: approve; n: cancel the job; other text: reject with this feedback"
    )
    answer = ""
    while not answer:
        answer = _line()
    try:
        match answer.lower():
            case "y" | "yes":
                jobs.approve(job_id)
            case "n" | "no":
                jobs.cancel(job_id)
            case _:
                jobs.reject(job_id, answer)
    except UserError as error:  # another person answered first, or the note is not valid
        print_message(str(error))


def _subject(question: Question) -> str:
    """Return the subject of the approval: `plan`, `step left`, `steps left, right`."""
    if question.what is not ApprovalOf.STEP or not question.steps:
        return question.what.value
    noun = question.what.value
    if len(question.steps) > 1:
        noun += "s"
    return f"{noun} {', '.join(question.steps)}"


def _line() -> str:
    """Return the next line that the person types.

    Raises:
        KeyboardInterrupt: Ctrl-D or Ctrl-C.
    """
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = line_of_terminal()
    if not line:  # Ctrl-D: there is no answer from this terminal
        raise KeyboardInterrupt
    return line.strip()
