"""The gates and the rubric in words, for the writers of the answer. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handoff_queue.shared.text.word_forms import count_of
from handoff_queue.shared.types.gates import REQUIREMENTS, Gates
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.state import JobState

if TYPE_CHECKING:
    from handoff_queue.shared.types.ids import StepId

MAX_CHARS = 8_000
"""Characters of all requirements together."""


def requirements_of(state: JobState) -> tuple[str, ...]:
    """Return the conditions of the user that the answer must meet, one in each line.

    The numbers of the gates and the known facts are left out: they check what a writer has found.
    """
    lines = list(_gates_in_words(state.submitted.gates or Gates()))
    if state.submitted.rubric:
        for criterion in state.submitted.rubric.criteria:
            lines.append(f"{criterion.name}: {criterion.means}")
    return tuple(lines)


def with_requirements(state: JobState, step_id: StepId, task: str, max_chars: int) -> str:
    """Return the task of a step. The writers of the answer also get the requirements.

    Args:
        max_chars: most characters of the task.
    """
    requirements = requirements_of(state)
    if not requirements or step_id not in state.sinks:
        return task
    heading = REQUIREMENTS
    if len(state.sinks) > 1:
        if state.plan is not None and state.plan.synthesis is Synthesis.RECONCILE:
            return task  # the synthesizer writes the answer
        heading = f"Your result is one of {len(state.sinks)} parts of the answer. {REQUIREMENTS}"
    listed = "\n".join(f"- {line}" for line in requirements)[:MAX_CHARS]
    above = task[: max_chars - len(heading) - len(listed) - 3]
    return f"{above}\n\n{heading}\n{listed}"


def _gates_in_words(gates: Gates) -> Iterator[str]:
    if gates.min_words:
        yield f"It has at least {count_of(gates.min_words, 'word')}."
    if gates.max_words is not None:
        yield f"It has at most {count_of(gates.max_words, 'word')}."
    for section in gates.sections:
        yield f'It has a heading "{section}".'
    for pattern in gates.required:
        yield f"A part of it matches the pattern {pattern!r}."
    for pattern in gates.forbidden:
        yield f"No part of it matches the pattern {pattern!r}."
    if gates.cited:
        yield (
            "Each statement of fact points to a claim with a source, and the quote stands in the"
            " source letter by letter."
        )
