"""A task of the host's own Celery app, which is sent when a job has ended."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.json_values import StorableJson
from handoff_queue.shared.types.message import Message

MOST_NAME_CHARS = 255
"""Of a task or a queue: AMQP's longest short string, in bytes."""
DEFAULT_QUEUE = "celery"
"""The queue of a stock Celery worker."""
_Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME_CHARS)]


class EndTask(Message):
    """The task, its queue and its own arguments. The end of the job is added when the task is sent."""

    task: _Name
    queue: _Name = DEFAULT_QUEUE
    args: tuple[StorableJson, ...] = ()
    kwargs: dict[str, StorableJson] = Field(default_factory=dict)
    is_told: bool = True
    """Whether the end of the job goes before `args`, as the result of a task goes to its callback."""
