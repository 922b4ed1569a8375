"""Names of Celery tasks and queues, and the pattern of names. A specialist's queue has the
specialist's name.
"""

from __future__ import annotations

from enum import StrEnum

NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,47}$"
NAME_RULE = (
    "lower-case letters, digits, `-` and `_`, and begin with a letter (at most 48 characters)"
)
"""The pattern in words, after `must be`."""

ADVANCE = "supervisor.advance"
"""Task that evaluates a job."""
JOB = "supervisor.job"
"""Task that stands for a whole job in Flower. No message has this name."""
SPECIALIST_PREFIX = "specialist."

SUPERVISOR_QUEUE = "supervisor"
"""Wake-ups of jobs that have changed."""
SUBMISSIONS_QUEUE = "submissions"
"""First wake-ups of new jobs. Their queue is separate, so 10,000 new jobs cannot starve
running jobs.
"""
ROLES_QUEUE = "roles"
"""Handoffs of roles, when the supervisor that issued them has no free slot."""
UNROUTED_QUEUE = "unrouted"
"""Name of Celery's default queue. No message of this project goes there."""

DEFAULT_TENANT = "default"
"""Tenant of a job that names no tenant."""


class Role(StrEnum):
    """The supervisor's own agents. Their calls are handoffs, too. `reviewer` is a specialist
    (docs/decisions/0002).
    """

    ROUTER = "router"
    PLANNER = "planner"
    REPLANNER = "replanner"
    JUDGE = "judge"
    ASSESSOR = "assessor"
    SYNTHESIZER = "synthesizer"


ROLES: tuple[str, ...] = tuple(Role)
PLANNING_ROLES = (Role.ROUTER, Role.PLANNER, Role.REPLANNER)
"""Roles that assign work. Only they see the list of documents, because no role reads documents."""
CLOSING_ROLES = (Role.ASSESSOR, Role.SYNTHESIZER)
"""Roles that end a job. Only they may use the reserve of the job's budget."""
REVIEWING_ROLES = (Role.JUDGE, Role.ASSESSOR)
"""Roles that review the work of others. HANDOFF_REVIEW_MODEL gives them another model."""
FACT_GATE = "fact_gate"
"""The step of fact-check handoffs. It is not in any plan."""
TAKES_NO_MESSAGES = (Role.JUDGE, FACT_GATE)
"""Steps of the handoffs whose agents decide by evidence alone, without messages of users."""
CHILD_JOB_SPECIALIST = "supervisor"
"""The specialist of a step that becomes a child job with its own plan."""
KEYS_OF_CELERY = ("unacked", "unacked_index", "unacked_mutex", "celery", "celeryev")
"""Keys of kombu and Celery: unacknowledged messages, the default queue, and the exchange of
events.

A queue is a Redis key with the name of the queue. So a specialist with one of these names
would wait forever. All other keys contain a character that names may not have.
"""
RESERVED = (
    *ROLES,
    CHILD_JOB_SPECIALIST,
    SUBMISSIONS_QUEUE,
    ROLES_QUEUE,
    UNROUTED_QUEUE,
    *KEYS_OF_CELERY,
)
"""Names that no specialist can take."""


def get_task(agent: str) -> str:
    """Return the Celery task of an agent."""
    return f"{SPECIALIST_PREFIX}{agent}"


def get_queue(agent: str) -> str:
    """Return the queue of an agent. All roles share one queue."""
    if agent in ROLES:
        return ROLES_QUEUE
    return agent
