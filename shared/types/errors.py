"""All errors that the project raises on purpose.

HandoffError
├── UserError            a mistake of a user, in a command or the configuration: one line with the fix (exit 2)
│   ├── InvalidSpecialist    a specialist's Markdown file
│   ├── InvalidTool          a user's own tool
│   ├── InvalidDocuments     the documents of a job
│   ├── UnknownJob           no job has this id
│   ├── UnknownSchedule      the tenant has no schedule of this name
│   ├── ScheduleExists       the tenant has a schedule of this name
│   ├── ManyProblems         several mistakes, one line for each
│   │   └── PlanRefused      mistakes in a plan that a person has written, with their places
│   ├── BudgetSpent          the budget of the day is spent
│   ├── NotesFull            the memory of the tenant is full; also a StoreError
│   ├── TooManyOpenJobs      the tenant has as many open jobs as it may have; also a StoreError
│   ├── Conflict             the idempotency key belongs to another request
│   │   ├── UnreadableJob        another program has changed the record of the job
│   │   └── UnverifiedEnd        a job has ended, and the signature of its end does not hold
│   └── MissingCredentials   a real model was requested, and there is no key
├── MalformedMessage     a message or a stored value that does not parse
│   └── UnusableSubmission   the submission of a job has no valid signature; also a Conflict
├── UntrustedMessage     no valid signature, or a replay: the message becomes a dead letter
├── StoreError
│   ├── StoreUnavailable     Redis cannot be reached, refuses the client, or is full (exit 3)
│   │   └── StoreRefusesWrites   Redis is full or read-only: this write was not made
│   ├── UnusableRedis        a Redis Cluster, or no database of that number; also a UserError (exit 2)
│   ├── UnreadablePayload    a stored payload that is damaged, too long, or does not match its digest
│   │   └── NoTenantKey      the text is encrypted, and this process does not have the key
│   ├── VersionConflict      the journal has grown since it was read: read it and decide again
│   ├── PoisonJob            evaluations of the job never end: the job ends without another one
│   └── TooManyEvaluators    the processes that evaluate the job may be frozen: try later
├── Interrupted          this process must stop its work on the handoff, and write nothing more
│   ├── LeaseLost            another claim has the fence
│   ├── Cancelled            the job was cancelled
│   ├── Deferred             the provider's rate limits last long: the handoff waits without a slot
│   ├── ApprovalAwaited      a person must approve a call: the handoff waits without a slot
│   ├── Paused               the agent is paused: the handoff waits until it is unpaused
│   └── Draining             the process was told to stop
├── errors that a model reads and can correct; each is defined beside the code that raises it
│   ├── ToolFailed           shared.agent.tool: a tool has no result, and says why
│   ├── InvalidAnswer        shared.agent.answer_format: the final text is not an answer
│   ├── BrokenSchema         shared.agent.json_schema_validation: the schema cannot be used
│   └── UnusablePattern      shared.types.regex_patterns: not a regular expression of RE2
├── DocumentRefused      shared.documents.media_types: a file that is not a document
├── MessagesWaiting      users have sent messages, which the agent takes before its next call
├── LimitReached         a limit of the handoff, the job or the day: the handoff ends as `partial`
└── ModelError           a failed call of the model's server; see `retryable`
    ├── ModelRejected        400, 401, 403, 404, 413, 422: the same call will fail again
    │   └── ContextEditRejected  a 400 about an edit of the context: the agent loop makes it itself
    ├── ModelBusy            429, 529: try later, perhaps after `retry_after_s`
    ├── ModelUnreachable     5xx, time-outs, connections, a stream that broke off
    │   ├── ServerFailed         a 500 of the Messages API itself: the call cost nothing
    │   └── NeverSent            no byte of the request was sent: the call cost nothing
    │       └── Unsendable           credentials, certificates or a proxy: another try fails too
    └── ModelRefused         the model declined (stop reason `refusal`)
"""  # noqa: E501 - a tree of errors

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from handoff_queue.shared.types.rate_limits import NO_RATE_LIMITS, RateLimits

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell (128 + SIGINT), and for a cancelled job."""


class HandoffError(Exception):
    """Root of all errors that the project raises on purpose. Any other exception is an
    internal error.
    """

    command = ""
    """The command that shows more, such as `handoff list`. Only the command line prints it: a user
    of the HTTP API or of a program may not have the commands.
    """

    @property
    def line(self) -> str:
        """Return the message for the command line, which names the command."""
        text = self._describe_for_commands()
        return f"{text} (see `{self.command}`)" if self.command else text

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines that the command line prints, one for each mistake."""
        return (self.line,)

    def _describe_for_commands(self) -> str:
        """Return the message for the command line, without the command."""
        return str(self)


_OPTION = re.compile(r" \((?:no )?--[a-z][^()]*\)")
"""The option of a field in a message, as in `deadline_s (--deadline)`, or the option to remove, as
in `strict_documents=False (no --strict-docs)`.
"""


class UserError(HandoffError):
    """A mistake of the user. The message is one line: the fault, and how to fix it.

    A message may name the option of a field in brackets, as in `deadline_s (--deadline)`. Only
    the command line prints the option, because programs and the HTTP API have fields.
    """

    exit_code: ClassVar[int] = 2
    """Exit code of a command that ends with this error. Click uses the same code."""

    def __init__(self, *texts: str, command: str = "") -> None:
        super().__init__(*texts)
        self.command = command

    def __str__(self) -> str:
        return _OPTION.sub("", self._describe_for_commands())

    def _describe_for_commands(self) -> str:
        return super().__str__()


class InvalidSpecialist(UserError):
    """A specialist's file does not parse, names an unknown tool, or takes a name twice."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self._faults = faults

    @property
    def lines(self) -> tuple[str, ...]:
        return self._faults


class InvalidTool(UserError):
    """A user's tool has no types, no docstring, or takes a name twice."""


class InvalidDocuments(UserError):
    """A document is too large, binary, unreadable, or outside its folder."""


class UnknownJob(UserError):
    """No job has this id."""

    @classmethod
    def for_job(cls, job_id: str) -> UnknownJob:
        return cls(f"there is no job {job_id}", command="handoff list")


class UnknownSchedule(UserError):
    """The tenant has no schedule of this name."""


class ScheduleExists(UserError):
    """The tenant has a schedule of this name."""


class ManyProblems(UserError):
    """Several mistakes. The message has a line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._describe_for_commands().splitlines())


class PlanRefused(ManyProblems):
    """Mistakes in a plan that a person has written."""

    def __init__(self, problems: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Make the error of these problems. Each has its text and its place in the plan, from
        the outermost field inwards: `("steps", "0", "task")`.
        """
        super().__init__([text for text, _ in problems])
        self.problems = tuple(problems)


class BudgetSpent(UserError):
    """The tenant or the installation has spent its budget of the day. The message says when
    the next day begins.
    """


class Conflict(UserError):
    """The idempotency key was used before, for another request."""


class UnreadableJob(Conflict):
    """Another program has changed the record of the job in Redis."""

    @classmethod
    def for_job(cls, job_id: str) -> UnreadableJob:
        return cls(
            f"the record of {job_id} in Redis cannot be read: delete the job",
            command=f"handoff delete {job_id}",
        )


class MissingCredentials(UserError):
    """A real model was requested, and no key is set."""


class MalformedMessage(HandoffError):
    """A message or a stored value does not parse. The message becomes a dead letter with this
    reason.
    """


class UnusableSubmission(MalformedMessage, Conflict):
    """The journal of a job does not begin with a submission that has a valid signature. The job may
    be older than the keys of the installation.
    """

    @classmethod
    def for_job(cls, job_id: str) -> UnusableSubmission:
        return cls(
            f"the submission of {job_id} has no valid signature: delete the job, and submit its"
            " request again",
            command=f"handoff delete {job_id}",
        )


class UnverifiedEnd(Conflict):
    """A job has ended, and this process does not trust the event of its end."""

    @classmethod
    def for_job(cls, job_id: str, status: str, reason: str) -> UnverifiedEnd:
        """Make the error.

        Args:
            status: the status of the job.
            reason: why the event is not used.
        """
        return cls(
            f"{job_id} has ended with the status {status}, and the event of its end is not used:"
            f" {reason}"
        )


class UntrustedMessage(HandoffError):
    """A message has no signature or a wrong one, its sender may not send it, or it is a replay.
    The message becomes a dead letter with this reason, and nothing uses it.
    """


class StoreError(HandoffError):
    """An operation of the store failed."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached, refuses the password, is loading, read-only or full."""

    exit_code: ClassVar[int] = 3


class StoreRefusesWrites(StoreUnavailable):
    """Redis is full or read-only. Redis refuses before it writes, so this write was not made."""


class UnusableRedis(StoreError, UserError):
    """The address of Redis names a database that this Redis does not have, or a Redis Cluster."""


class UnreadablePayload(StoreError):
    """A stored payload is damaged, too long, or does not match its digest. Nothing uses the
    payload.
    """


class NoTenantKey(UnreadablePayload):
    """A text of a tenant is encrypted, and this process does not have the key."""


class NotesFull(StoreError, UserError):
    """The memory of a tenant has as many notes as it may have."""


class TooManyOpenJobs(StoreError, UserError):
    """The tenant has as many open jobs as it may have. The message says how to go on."""

    @classmethod
    def of(cls, tenant: str, limit: int) -> TooManyOpenJobs:
        return cls(
            f"tenant {tenant} has reached its limit of open jobs ({limit:,},"
            " HANDOFF_TENANT_OPEN_JOBS): wait until a job ends, or cancel a job"
        )


class VersionConflict(StoreError):
    """The journal has grown or changed since the caller read it."""


class PoisonJob(StoreError):
    """Several supervisors began to evaluate a job, and no evaluation ended."""


class TooManyEvaluators(StoreError):
    """The processes that evaluate this job may be frozen. No other process begins until they
    end.
    """


class Interrupted(HandoffError):
    """This process must stop its work on the handoff. Later results are not written."""


class LeaseLost(Interrupted):
    """The claim is lost: its lease may be over, or the handoff has another claim or has ended."""


class Cancelled(Interrupted):
    """The job was cancelled, or no longer needs the handoff."""


class Deferred(Interrupted):
    """The next call has to wait long for the provider's rate limits.

    The handoff continues after `seconds`, in this worker or in another one.
    """

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(f"{why}, again in {seconds:.0f} s")
        self.seconds = seconds
        self.why = why


class ApprovalAwaited(Interrupted):
    """A person must approve a call of a tool. The claim has ended, and the handoff waits in the
    store.
    """


class Paused(Interrupted):
    """The agent was paused; the handoff waits in the store until the agent is unpaused."""


class Draining(Interrupted):
    """This process is shutting down; the handoff goes back to its queue."""


class MessagesWaiting(HandoffError):
    """Users have sent messages to the agent. It takes them before its next model call."""


class Level(StrEnum):
    """The owner of a limit."""

    HANDOFF = "handoff"
    JOB = "job"
    ANCESTOR = "ancestor"
    """A job above this one: its parent, or a parent of its parent."""
    TENANT = "tenant"
    INSTALLATION = "installation"


BUDGET_NAMES = {
    Level.HANDOFF: "the budget of this handoff",
    Level.JOB: "the job's budget",
    Level.ANCESTOR: "the budget of the job above",
    Level.TENANT: "the tenant's budget of the day (until 00:00 UTC)",
    Level.INSTALLATION: "the installation's budget of the day (until 00:00 UTC)",
}
"""The limit of each level, in words."""


class LimitReached(HandoffError):
    """A limit is reached. The work so far becomes a `partial` result.

    `limit` is the name of the limit, and `level` its owner.
    """

    def __init__(self, limit: str, detail: str = "", *, level: Level = Level.HANDOFF) -> None:
        super().__init__(f"{limit}{': ' + detail if detail else ''}")
        self.limit = limit
        self.level = level


class ModelError(HandoffError):
    """A model call gave no reply. `status` is the HTTP status, if there was one."""

    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class ModelRejected(ModelError):
    """The same call would fail again: bad request, bad key, unknown model, or too large."""


class ContextEditRejected(ModelRejected):
    """The server does not edit the context of requests. A retry is useful, because the agent loop
    makes the next call without the edit.
    """

    retryable: ClassVar[bool] = True


class ModelBusy(ModelError):
    """Rate limit or overload; nothing was paid. `limits` holds the rate limits that the server
    reported.
    """

    retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        limits: RateLimits = NO_RATE_LIMITS,
    ) -> None:
        super().__init__(message, status=status, retry_after_s=retry_after_s)
        self.limits = limits


class ModelUnreachable(ModelError):
    """Server error, time-out, broken connection or cut stream. The generated tokens may have
    been paid.
    """

    retryable: ClassVar[bool] = True


class ServerFailed(ModelUnreachable):
    """The Messages API reported its own failure in place of a reply. The call costs nothing."""


class NeverSent(ModelUnreachable):
    """No byte of the request was sent: the model has generated nothing, so the call costs
    nothing.
    """


class Unsendable(NeverSent):
    """The request cannot be sent with these settings: credentials, certificate, proxy or URL
    are wrong.
    """

    retryable: ClassVar[bool] = False


class ModelRefused(ModelError):
    """The model declined to answer."""
