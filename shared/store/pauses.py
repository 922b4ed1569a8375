"""Pauses, the kill switch: a paused agent gets no claim and no further turn on any machine
until an operator resumes it.

The scripts `claim`, `commit` and `turn` check the pause. A handoff that they stop is paused:
it waits in no queue, and no process publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import convert_score, iterate_rows, parse_name
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import Message

CHECK_EVERY_S = 2.0
"""Seconds between two checks of a worker whether it may consume its queues. A message that it
has already taken gets no claim, and its handoff is paused.
"""

UNREADABLE = "its time and reason cannot be read"


class Pause(Message):
    """Pause of an agent."""

    at: float
    """Unix time in seconds."""
    reason: str = ""
    """Reason that the operator gave."""


@dataclass(frozen=True, slots=True)
class PausedHandoff:
    """A handoff that waits until its agent is unpaused."""

    job_id: JobId
    handoff_id: HandoffId
    agent: str
    since: float
    """Unix time in seconds."""


class Pauses:
    """The pauses of all agents."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pause(self, agent: str, reason: str) -> None:
        """Pause an agent from now on. A second pause replaces the reason."""
        pause = Pause(at=self._connection.now(), reason=reason)
        with self._connection.translate_errors():
            self._connection.redis.hset(keys.PAUSED, agent, pause.to_json())

    def unpause(self, agent: str) -> int | None:
        """Unpause an agent. Return the number of released handoffs; None if it was not paused."""
        released_count = int(
            self._connection.run_script(
                "unpause", [keys.PAUSED, keys.PAUSED_HANDOFFS + agent], [agent]
            )
        )
        if released_count < 0:
            return None
        return released_count

    def read_all(self) -> dict[str, Pause]:
        """Return all pauses by agent."""
        with self._connection.translate_errors():
            texts = self._connection.redis.hgetall(keys.PAUSED)
        return parse_pauses(texts)

    def read_paused_handoffs(
        self, agents: Sequence[str], limit: int
    ) -> tuple[list[PausedHandoff], int]:
        """Return the paused handoffs of these agents, the oldest first, and their number.

        Args:
            limit: most handoffs to return; the number counts all.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for agent in agents:
                pipe.zcard(keys.PAUSED_HANDOFFS + agent)
                pipe.zrange(keys.PAUSED_HANDOFFS + agent, 0, limit - 1, withscores=True)
            answers = pipe.execute()
        handoffs: list[PausedHandoff] = []
        number = 0
        for agent, (paused_by_agent, members) in zip(agents, iterate_rows(answers, 2), strict=True):
            number += paused_by_agent
            for member, since_ms in members:
                job_id, _, handoff_id = parse_name(member).partition("/")
                since = convert_score(since_ms) or 0.0
                handoffs.append(PausedHandoff(JobId(job_id), HandoffId(handoff_id), agent, since))
        handoffs.sort(key=lambda handoff: handoff.since)
        return handoffs[:limit], number

    def list_agents(self) -> frozenset[str]:
        """Return the names of the paused agents."""
        with self._connection.translate_errors():
            agents = self._connection.redis.hkeys(keys.PAUSED)
        return frozenset(map(parse_name, agents))


def parse_pauses(texts: Mapping[bytes, bytes]) -> dict[str, Pause]:
    """Return the stored pauses by agent, in the order of the agents."""
    pauses: dict[str, Pause] = {}
    for agent, text in sorted(texts.items()):
        pauses[parse_name(agent)] = parse_pause(text)
    return pauses


def parse_pause(text: bytes) -> Pause:
    """Return a stored pause. An unreadable pause still holds: its time is 0, and its reason is
    `UNREADABLE`.
    """
    try:
        return Pause.from_json(text)
    except MalformedMessage:
        return Pause(at=0, reason=UNREADABLE)
