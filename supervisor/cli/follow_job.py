"""Show a job until its end, and then its outcome. Ask the person at the terminal the question that
the job waits for, and send the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, describe_awaited_answer
from handoff_queue.supervisor.cli.display.job_view import JobUpdate, follow
from handoff_queue.supervisor.cli.display.remedies import with_remedy_in_place
from handoff_queue.supervisor.cli.display.terminal import (
    BrokenPipe,
    get_stderr,
    print_message,
    print_progress,
    read_terminal_line,
    write_json,
)
from handoff_queue.supervisor.cli.errors import (
    get_exit_code,
)
from handoff_queue.supervisor.client.journal_follower import RECONNECT_FOR_S
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.supervisor.cli.display.answer import Draft
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.job_result import JobResult
    from handoff_queue.supervisor.client.waiting_reasons import WaitingReason
    from handoff_queue.supervisor.lifecycle.state import JobState, Question


def ask_in_place(jobs: Client, job_id: JobId, question: Question, *, is_private: bool) -> None:
    """Show a question of the job, read the answer and send it.

    Args:
        is_private: True if no other command can reach the job.
    """
    from handoff_queue.supervisor.cli.display.answer import build_account
    from handoff_queue.supervisor.cli.display.job_report import format_readable

    result = jobs.result(job_id)
    draft = call = None
    for approval in result.approvals:
        if approval["version"] == question.version:
            draft, call = approval["draft"], approval["call"]
            break
    console = get_stderr()
    if question.what is ApprovalOf.PLAN:
        print_progress(format_readable(result.plan, console.width))
    else:
        console.print(build_account(result, is_private=is_private))
    if call is not None:
        print_progress(format_readable(call, console.width))
    if isinstance(draft, str):
        print_progress(f"\n{replace_unsafe(draft)}\n")
    elif draft is not None:
        print_progress(f"\n{format_readable(draft, console.width)}\n")
    keys = "y: approve; n: cancel the job; other text: reject with this feedback"
    print_progress(f"{job_id} waits for {_describe_awaited_answer(question)}. {keys}")
    question_version = question.version if call is not None else None
    answer = ""
    while not answer:
        answer = _read_line()
    try:
        match answer.lower():
            case "y" | "yes":
                jobs.approve(job_id, question=question_version)
            case "n" | "no":
                jobs.cancel(job_id)
            case _:
                jobs.reject(job_id, answer, question=question_version)
    except UserError as error:  # another person answered first, or the note is not valid
        print_message(error.line)


def _describe_awaited_answer(question: Question) -> str:
    """Return the answer that the job waits for: `an approval of its plan`, `of its steps left,
    right`, or `of a call of send_mail`.
    """
    from handoff_queue.supervisor.lifecycle.state import AskedCall

    if isinstance(question, AskedCall):
        return f"an approval of a call of {question.tool}"
    if question.what is not ApprovalOf.STEP or not question.steps:
        return describe_awaited_answer(question.what)
    noun = "steps" if len(question.steps) > 1 else "step"
    return f"an approval of its {noun} {', '.join(question.steps)}"


def _read_line() -> str:
    """Return the next line that the person types.

    Raises:
        KeyboardInterrupt: Ctrl-D or Ctrl-C.
    """
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = read_terminal_line()
    if not line:  # Ctrl-D: there is no answer from this terminal
        raise KeyboardInterrupt
    return line.strip()


def follow_to_end(
    jobs: Client,
    job_id: JobId,
    *,
    as_json: bool,
    allow_partial: bool,
    asks: bool = False,
    check: Callable[[], None] = lambda: None,
    reconnect_for_s: float = RECONNECT_FOR_S,
    output: Path | None = None,
    is_private: bool = False,
    unserved: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Show the job until its end, then its outcome. Return the exit code.

    Args:
        allow_partial: whether a partial answer gives exit code 0.
        asks: whether the person at the terminal answers the questions of the job.
        check: called at each update. An exception ends the command.
        output: file that gets a row for each item of the workflow, instead of an answer on stdout.
        is_private: True if the Redis ends with this command, so that no other command reaches the
            job.
        unserved: see `with_remedies_in_place`.

    Raises:
        KeyboardInterrupt: Ctrl-C, or stdout has no reader while the draft of the answer is printed.
        OutputFailed: standard output, or the file `output`, cannot be written.
        NoTerminal: the job asks a question that has no reader (`is_private` without `asks`).
    """
    from handoff_queue.supervisor.cli.display.answer import Draft
    from handoff_queue.supervisor.client.client import connect_onlooker

    onlooker = connect_onlooker(jobs)
    draft = None
    if not as_json and not output:
        draft = Draft(onlooker)
    follow_updates = partial(follow, onlooker, job_id, check=check, reconnect_for_s=reconnect_for_s)

    def iterate_updates() -> Iterable[JobUpdate]:
        if is_private:
            return with_remedies_in_place(follow_updates(), unserved)
        return follow_updates()

    answered_version = 0 if asks or is_private else None
    try:
        question = _show_until_question(iterate_updates(), draft, answered_version)
        while question is not None:
            if not asks:
                raise NoTerminal(f"{job_id} waits for a person, and there is no terminal to ask in")
            ask_in_place(jobs, job_id, question, is_private=is_private)
            answered_version = question.version
            question = _show_until_question(iterate_updates(), draft, answered_version)
    except BrokenPipe as error:
        raise KeyboardInterrupt from error
    onlooker.store.connection.close()
    result = jobs.result(job_id)
    if output is not None:
        from handoff_queue.supervisor.cli.display.row_table import write_rows

        write_rows(job_id, result.rows(), output)
        return get_exit_code(result.status, allow_partial=allow_partial)
    streamed = draft.returned_text if draft else ""
    return print_outcome(
        result,
        as_json=as_json,
        allow_partial=allow_partial,
        streamed=streamed,
        is_private=is_private,
    )


class NoTerminal(Exception):
    """The job waits for a person, and there is no terminal to ask in."""


def with_remedies_in_place(
    updates: Iterable[JobUpdate], unserved: Mapping[str, str]
) -> Iterator[JobUpdate]:
    """Yield the updates of a job on a private Redis, with the remedies that reach it.

    Args:
        unserved: specialists that no worker of this run can serve, each with the reason.
    """
    for update in updates:
        reasons: list[WaitingReason] = []
        for reason in update.view.waiting_reasons:
            in_place = with_remedy_in_place(reason)
            if reason.specialists and all(name in unserved for name in reason.specialists):
                fix = (
                    f"this run cannot serve it ({replace_unsafe(unserved[reason.specialists[0]])})"
                )
                in_place = replace(in_place, fix=fix)
            reasons.append(in_place)
        yield replace(update, view=replace(update.view, waiting_reasons=tuple(reasons)))


def _show_until_question(
    updates: Iterable[JobUpdate], draft: Draft | None, answered_version: int | None
) -> Question | None:
    """Show the job until its next question, and return the question. Return None at the end.

    Args:
        answered_version: version of the last answered question. None: do not stop at questions.
    """
    from handoff_queue.supervisor.cli.display.screen import Screen

    with Screen(draft) as screen:
        for update in updates:
            screen.show(update)
            if answered_version is None or update.view.state is None:
                continue
            for question in _list_open_questions(update.view.state):
                if question.version > answered_version:
                    return question
    return None


def _list_open_questions(state: JobState) -> list[Question]:
    """Return the open questions of a job, the oldest first."""
    questions: list[Question] = [*state.open_calls]
    if state.question is not None:
        questions.append(state.question)
    return sorted(questions, key=lambda question: question.version)


def print_outcome(
    result: JobResult,
    *,
    as_json: bool,
    allow_partial: bool = False,
    streamed: str = "",
    is_private: bool = False,
) -> int:
    """Print the answer on stdout (with `as_json`: all data) and the usage on stderr.

    Return the exit code of the job, also if stdout has no reader.

    Args:
        streamed: the part of the answer that was printed while the model wrote it.
        is_private: True if no other command can reach the job.

    Raises:
        OutputFailed: stdout cannot be written.
    """
    with suppress(BrokenPipe):
        _print_outcome(result, as_json=as_json, streamed=streamed, is_private=is_private)
    return get_exit_code(result.status, allow_partial=allow_partial)


def _print_outcome(result: JobResult, *, as_json: bool, streamed: str, is_private: bool) -> None:
    from handoff_queue.supervisor.cli.display.answer import (
        build_account,
        describe_verdict,
        print_answer,
    )

    if as_json:
        write_json(result.to_json())
    else:
        print_answer(result, streamed)
        print_progress("")
        get_stderr().print(build_account(result, is_private=is_private))
    remark = describe_verdict(result, is_private=is_private)
    if remark:
        print_message(remark)
