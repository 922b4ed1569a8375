"""Every Celery task and queue name. A specialist's queue is its name."""

from __future__ import annotations

ADVANCE = "supervisor.advance"
JOB = "supervisor.job"
"""The end of a job in Flower. No message has this name."""
SPECIALIST_PREFIX = "specialist."

SUPERVISOR_QUEUE = "supervisor"
"""Wake-ups: something about a job has changed."""
SUBMISSIONS_QUEUE = "submissions"
"""First wake-ups of new jobs, apart: 10,000 new jobs must not starve the running ones."""
THINK_QUEUE = "think"
"""The supervisor's own model calls, when a supervisor has no slot left to run them in place."""
UNROUTED_QUEUE = "unrouted"
"""Celery's default queue: nothing should ever be in it."""

ROLES = ("router", "planner", "replanner", "judge", "assessor", "synthesizer")
"""The supervisor's own agents: handoffs too, on the think queue. `reviewer` is a specialist
(docs/decisions/0002).
"""
CLOSING_ROLES = ("assessor", "synthesizer")
"""Those that bring a job to its end: what its budget keeps back for that, they alone may use."""
JUDGING_ROLES = ("judge", "assessor")
"""Those that look at the work of others: HANDOFF_REVIEWER_MODEL gives them a model that is not
the one that wrote it.
"""
FACT_GATE = "fact_gate"
"""The step that a fact-checker's handoffs are of: it stands in no plan."""
SUB_SUPERVISOR = "supervisor"
"""Whom a plan names for a step that is a job of its own, with a plan of its own: a child job."""
KEYS_OF_CELERY = ("unacked", "unacked_index", "unacked_mutex", "celery", "celeryev")
"""A queue is a Redis key of its name. These are kombu's keys for messages that are out,
Celery's default queue, and the exchange of its
events: a specialist of such a name would wait for ever. (All other keys of theirs and ours
hold a character that no name may.)
"""
RESERVED = (*ROLES, SUB_SUPERVISOR, SUBMISSIONS_QUEUE, THINK_QUEUE, UNROUTED_QUEUE, *KEYS_OF_CELERY)
"""Names that no specialist can take."""


def task_of(role: str) -> str:
    return f"{SPECIALIST_PREFIX}{role}"


def queue_of(role: str) -> str:
    return THINK_QUEUE if role in ROLES else role
