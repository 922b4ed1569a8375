"""Every error that the project raises on purpose.

HandoffError
├── UserError            what a person typed or configured; one line, says how to mend it      (exit 2)
│   ├── InvalidSpecialist    a specialist's Markdown file
│   ├── InvalidTool          a user's own tool
│   ├── InvalidDocuments     what --docs points at
│   ├── UnknownJob           no such job id
│   ├── ManyProblems         several at once, a line each
│   │   └── PlanRefused      a plan that a person has written, and where in it
│   ├── BudgetSpent          a cap of the day is reached
│   ├── Conflict             an idempotency key that stands for another request
│   └── MissingCredentials   a real model without a key
├── MalformedMessage     a message or a stored value that does not parse
├── StoreError
│   ├── StoreUnavailable    Redis cannot be reached, refuses us, or is full                     (exit 3)
│   │   └── StoreRefuses        it is full or read-only: this write was not made
│   ├── UnusableRedis        a cluster, or no database of that number; a UserError, too          (exit 2)
│   ├── UnreadablePayload    a stored payload that is damaged, too long, or not the text of its digest
│   ├── VersionConflict      the journal has grown since it was read: read again, decide again
│   ├── LooksFrozen          looks at the job never come to their end: it is ended without another one
│   └── LooksCrowded         those who look at the job may be frozen: later
├── Interrupted          this process must stop working on the handoff, and write nothing more
│   ├── LeaseLost            another claim has the fence
│   ├── Cancelled            the job was cancelled
│   ├── Parked               the provider's rate limits last long: it waits in the store, and frees its slot
│   ├── Paused               its role was paused: it waits until that is resumed
│   └── Draining             the process was asked to stop
├── told to a model, which may mend it; each stands beside what raises it
│   ├── ToolFailed           shared.agent.tool: what a tool has to say instead of a result
│   ├── NotAcceptable        shared.agent.answer_format: an answer that is none
│   ├── BrokenSchema         shared.agent.schemas: nothing can be checked against it
│   └── UnusablePattern      shared.types.patterns: no regular expression of RE2's
├── Refused              shared.documents.decoding: a file that is no document; becomes an InvalidDocuments
├── LimitReached         a limit of the handoff, its job, or the day: ends it as `partial`
└── ModelError           the model's server; see its `retryable`
    ├── ModelRejected        400, 401, 403, 404, 413, 422: the same call will fail again
    │   └── SchemaRejected       a 400 about strict schemas: from now on this model is asked without them
    ├── ModelBusy            429, 529: later, perhaps `retry_after_s`
    ├── ModelUnreachable     5xx, time-outs, connections, a stream cut in the middle
    │   └── NeverSent            no byte of the request was sent: nothing was paid
    │       └── Unsendable           credentials, certificates or a proxy: another try will fail, too
    └── ModelRefused         the model declined (stop reason `refusal`)
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from handoff_queue.shared.types.rate_limits import NOTHING_SAID, RateLimits


class HandoffError(Exception):
    """The root: whatever is not below it is a defect."""


class UserError(HandoffError):
    """One line for a person: what is wrong, and how to mend it."""

    exit_code: ClassVar[int] = 2
    """How a process ends that a person has given something wrong, as Click's do."""


class InvalidSpecialist(UserError):
    """A specialist's file does not parse, names an unknown tool, or takes a name twice."""


class InvalidTool(UserError):
    """A user's tool has no types, no docstring, or takes a name twice."""


class InvalidDocuments(UserError):
    """A document that cannot be taken: too large, binary, unreadable, or outside its folder."""


class UnknownJob(UserError):
    """No job has this id."""

    @classmethod
    def named(cls, job_id: str) -> UnknownJob:
        return cls(f"there is no job {job_id} (see `handoff list`)")


class ManyProblems(UserError):
    """Several things are wrong, each in a line of its own."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


class PlanRefused(ManyProblems):
    """A plan that a person has written, and what is wrong with it."""

    def __init__(self, problems: Sequence[tuple[str, Sequence[str]]]) -> None:
        """`problems`: each with where in the plan it is, from the outermost field inwards:
        `steps`, `0`, `task`.
        """
        super().__init__([said for said, _ in problems])
        self.problems = tuple(problems)


class BudgetSpent(UserError):
    """What the tenant, or the installation, may spend today is spent; says when there is more."""


class Conflict(UserError):
    """The idempotency key was used before, for another request."""


class MissingCredentials(UserError):
    """A real model was asked for, and there is no key."""


class MalformedMessage(HandoffError):
    """A message or stored value that does not parse; goes to the dead letters with this reason."""


class StoreError(HandoffError):
    """The store did not do what was asked."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached, refuses the password, is loading, read-only or full."""

    exit_code: ClassVar[int] = 3


class StoreRefuses(StoreUnavailable):
    """Redis is full or read-only. It says so before it writes anything: what was asked for was
    not done.
    """


class UnusableRedis(StoreError, UserError):
    """The address of Redis names a database that this Redis does not have, or a Redis Cluster."""


class UnreadablePayload(StoreError):
    """A stored payload is damaged, too long, or not the text that its digest names. It is
    never used.
    """


class VersionConflict(StoreError):
    """Compare-and-append found a longer (or shorter) journal than the one that was read."""


class LooksFrozen(StoreError):
    """Supervisors looked at a job again and again, and were never heard of again."""


class LooksCrowded(StoreError):
    """Nobody else looks at a job while those that do may be frozen."""


class Interrupted(HandoffError):
    """Stop working on this handoff now; whatever comes later is not written."""


class LeaseLost(Interrupted):
    """The lease ran out and another claim raised the fence."""


class Cancelled(Interrupted):
    """The job was cancelled, or ended without this handoff."""


class Parked(Interrupted):
    """The next call must wait long for the provider; the handoff goes on after `seconds`, here
    or elsewhere.
    """

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(f"{why}, again in {seconds:.0f} s")
        self.seconds = seconds
        self.why = why


class Paused(Interrupted):
    """The role was paused; the handoff waits in the store until it is resumed."""


class Draining(Interrupted):
    """This process is shutting down; the handoff goes back to its queue."""


class Level(StrEnum):
    """Whose limit it is."""

    HANDOFF = "handoff"
    JOB = "job"
    ABOVE = "above"
    """Of a job whose child this one is, directly or not."""
    TENANT = "tenant"
    INSTALLATION = "installation"


WHOSE = {
    Level.HANDOFF: "what this handoff may cost",
    Level.JOB: "the job's budget",
    Level.ABOVE: "the budget of the job above",
    Level.TENANT: "the tenant's budget of the day (until 00:00 UTC)",
    Level.INSTALLATION: "the installation's budget of the day (until 00:00 UTC)",
}
"""Each level's limit, in words."""


class LimitReached(HandoffError):
    """A limit, by name: the work so far becomes a `partial` result."""

    def __init__(self, limit: str, detail: str = "", *, level: Level = Level.HANDOFF) -> None:
        super().__init__(f"{limit}{': ' + detail if detail else ''}")
        self.limit = limit
        self.level = level


class ModelError(HandoffError):
    """A model call that gave no reply. `status` is the HTTP status, if there was one."""

    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class ModelRejected(ModelError):
    """The same call would be refused again: bad request, bad key, unknown model, too large."""


class SchemaRejected(ModelRejected):
    """The server takes no strict schemas: the next call says the same in words, and so is
    another one.
    """

    retryable: ClassVar[bool] = True


class ModelBusy(ModelError):
    """Rate limit or overload; nothing was paid. `limits`: what the server said of its rate
    limits beside it.
    """

    retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        limits: RateLimits = NOTHING_SAID,
    ) -> None:
        super().__init__(message, status=status, retry_after_s=retry_after_s)
        self.limits = limits


class ModelUnreachable(ModelError):
    """Server error, time-out, broken connection or cut stream. What was generated may have
    been paid.
    """

    retryable: ClassVar[bool] = True


class NeverSent(ModelUnreachable):
    """No byte of the request was sent: the model has generated nothing, so the call costs nothing."""


class Unsendable(NeverSent):
    """The request cannot be sent with these settings: credentials, certificate, proxy or URL
    are wrong.
    """

    retryable: ClassVar[bool] = False


class ModelRefused(ModelError):
    """The model declined to answer."""
