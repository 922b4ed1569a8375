"""A request: the text and limits of a job, and the checks of its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from handoff_queue.shared.agent.prices import Prices, build_prices
from handoff_queue.shared.documents.folder import MACHINE_MADE, FolderReading
from handoff_queue.shared.settings.http_values import get_server, split_http_url
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import (
    ManyProblems,
    UserError,
)
from handoff_queue.shared.types.events import (
    DEFAULT_TENANT,
)
from handoff_queue.shared.types.gates import FactTable, Gates, GatesFrom
from handoff_queue.shared.types.handoff import MAX_PATH_CHARS, make_ref
from handoff_queue.shared.types.ids import JobId, is_job_id
from handoff_queue.shared.types.job_options import (
    APPROVE_AT_ONCE,
    ApprovalOf,
    Approvals,
    Mode,
    OnTimeout,
    Priority,
)
from handoff_queue.shared.types.limits import MAX_SECONDS, JobLimits
from handoff_queue.shared.types.message import Message, describe_problems, describe_value
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.review import Rubric
from handoff_queue.shared.types.specialist import check_specialist
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.client.argument_types import check_tenant, check_type
from handoff_queue.supervisor.client.celery_signatures import check_allowed, parse_end_task
from handoff_queue.supervisor.gates.gates_file import GateSet, read_gates
from handoff_queue.supervisor.workflows import Items, Workflow
from handoff_queue.supervisor.workflows.workflow import WorkflowStep

if TYPE_CHECKING:
    from handoff_queue.shared.store.presence import ServedSpecialist

MAX_MODEL_CHARS = 200
"""Most characters of a model's name. All tenants share the list of models with a rate limit."""
MAX_SPECIALISTS = 1_000
"""Most specialists that a job names. Its first event, and lists of waiting jobs, have them."""


def check_documents(documents: object) -> None:
    """Check the type of the documents, and the names in a mapping.

    Raises:
        UserError: the documents have another type, or a document has a name that is not
            allowed.
    """
    if isinstance(documents, Mapping):
        for name, content in documents.items():
            if not (isinstance(name, str) and isinstance(content, bytes)):
                raise UserError(
                    "documents by name must be a mapping of str to bytes, not of"
                    f" {type(name).__name__} to {type(content).__name__}"
                )
            if not _is_document_name(name):
                raise UserError(
                    f"no document can be called {name!r:.80}: write a relative path such as"
                    " 'notes/a.md', without `..` and without parts that begin with a dot"
                )
    elif not isinstance(documents, Path | FolderReading | None):
        hint = ""
        if isinstance(documents, str):
            hint = f": write Path({documents!r:.80})"
        raise UserError(
            "documents must be a pathlib.Path, a mapping of names to bytes, or what"
            f" `read_documents` returned, not {type(documents).__name__}{hint}"
        )


def _is_document_name(name: str) -> bool:
    """Return whether a document may have this name: a relative path without hidden or
    machine-made parts.
    """
    if len(name) > MAX_PATH_CHARS or not name.isprintable() or "\\" in name:
        return False
    return all(map(_is_document_part, name.split("/")))


def _is_document_part(part: str) -> bool:
    return bool(part) and not part.startswith(".") and part not in MACHINE_MADE


def check_names(request: Request) -> None:
    """Check the names in a request.

    Raises:
        UserError: a name is empty or unprintable, no specialist can have the name, or the
            webhook is not a URL.
    """
    for label, text in (
        ("the idempotency key", request.idempotency_key),
        ("the model's name", request.model),
    ):
        if text is not None and not (text.strip() and text.isprintable()):
            raise UserError(
                f"{label} is {text!r:.80}: give one line of visible characters, or leave it out"
            )
    if request.model is not None and len(request.model) > MAX_MODEL_CHARS:
        raise UserError(
            f"the model's name has {len(request.model):,} characters, at most {MAX_MODEL_CHARS} are"
            " allowed"
        )
    for name in request.specialists:
        check_specialist(name)
    for step in _get_workflow_steps(request):
        if step.specialist != CHILD_JOB_SPECIALIST:
            check_specialist(step.specialist, f"step {step.id}: ")
    if request.webhook_url is not None:
        check_webhook(request.webhook_url)


class _TypedField(NamedTuple):
    """A field of a request, and its type."""

    label: str
    """The name of the field in an error."""
    value: object
    kind: type
    may_be_none: bool = False


def _build_hint(kind: type, value: object) -> str:
    """Return what to write for a field of this type in place of a wrong value; empty if the type
    alone says it.
    """
    file = "FILE"
    if isinstance(value, str | Path):
        file = str(value)
    hints: dict[type, str] = {
        Workflow: f"write read_workflow({file!r:.80})",
        Items: f"write read_items({file!r:.80})",
        FactTable: f"write read_facts({file!r:.80})",
        Approvals: "write for example Approvals(what=(ApprovalOf.PLAN,))",
        Gates: "write for example Gates(min_words=50)",
        JobLimits: "write for example Limits(max_turns=40)",
    }
    return hints.get(kind, "")


def check_types(request: Request) -> None:
    """Check the types and the bounds of the fields.

    Raises:
        UserError: a field has another type, or a value is outside its bounds.
    """
    typed_fields: tuple[_TypedField, ...] = (
        _TypedField("the request", request.text, str),
        _TypedField("strict_documents", request.strict_documents, bool),
        _TypedField("is_reviewed", request.is_reviewed, bool),
        _TypedField("is_quoted", request.is_quoted, bool),
        _TypedField("shares_runs", request.shares_runs, bool),
        _TypedField("the tenant", request.tenant, str),
        _TypedField("the limits", request.limits, JobLimits),
        _TypedField("the model", request.model, str, may_be_none=True),
        _TypedField("the answer schema", request.answer_schema, Mapping, may_be_none=True),
        _TypedField("the mode", request.mode, Mode, may_be_none=True),
        _TypedField("the workflow", request.workflow, Workflow, may_be_none=True),
        _TypedField("the items", request.items, Items),
        _TypedField("the gates", request.gates, Gates, may_be_none=True),
        _TypedField("the facts", request.facts, FactTable, may_be_none=True),
        _TypedField("the rubric", request.rubric, Rubric, may_be_none=True),
        _TypedField("the approvals", request.approvals, Approvals, may_be_none=True),
        _TypedField("the priority", request.priority, Priority, may_be_none=True),
        _TypedField("the deadline", request.deadline_s, int, may_be_none=True),
        _TypedField("after", request.after, str, may_be_none=True),
        _TypedField("the idempotency key", request.idempotency_key, str, may_be_none=True),
        _TypedField("the webhook", request.webhook_url, str, may_be_none=True),
        _TypedField("on_end", request.on_end, Mapping, may_be_none=True),
    )
    for typed_field in typed_fields:
        value, kind = typed_field.value, typed_field.kind
        if value is not None or not typed_field.may_be_none:
            check_type(typed_field.label, value, kind, _build_hint(kind, value))
        if isinstance(value, Message):
            check_bounds(typed_field.label, value)
    names: object = request.specialists
    if (
        isinstance(names, str)
        or not isinstance(names, tuple | list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError(
            f"specialists must be a tuple of names, not {names!r:.80}: write ('writer',) for one"
        )
    if len(names) > MAX_SPECIALISTS:
        raise UserError(
            f"the job names {len(names):,} specialists, at most {MAX_SPECIALISTS:,} are allowed"
        )


def check_bounds(name: str, message: Message) -> None:
    """Validate a message again, because `model_copy` and `model_construct` take any value.

    Raises:
        UserError: a value is outside its bounds.
    """
    try:
        type(message).model_validate(message.model_dump(warnings=False))
    except ValidationError as error:
        raise UserError(f"{name}: {describe_problems(error, shows_values=True)}") from error


def check_webhook(url: str) -> None:
    """Check the URL of a webhook.

    Raises:
        UserError: no POST can be sent to the URL, or the URL holds a password. The job would
            store the password.
    """
    try:
        parts = split_http_url(url)
    except ValueError as error:
        wrong_value = get_server(url).strip() or describe_value(url)
        name = f"webhook_url (--webhook) {wrong_value}".strip()
        raise UserError(f"{name} {error}") from None
    if "@" in parts.netloc:
        raise UserError(
            "webhook_url (--webhook) must not hold a user or a password, which would be stored"
            " with the job: leave them out, and check the signature instead"
            " (HANDOFF_WEBHOOK_SECRET)"
        )


@dataclass(frozen=True, slots=True)
class AnswerGates:
    """The gates and facts of an answer, and their origin."""

    gates: Gates | None = None
    """The gates. None: code checks nothing."""
    facts: str | None = None
    """A FactTable as JSON. None: there are no facts."""
    origin: GatesFrom | None = None
    """None: there are no gates."""

    @classmethod
    def build(cls, gate_set: GateSet, origin: GatesFrom) -> AnswerGates:
        facts = None
        if gate_set.facts:
            facts = gate_set.facts.to_json()
        return cls(gate_set.gates, facts, origin)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the gates as fields of the event JobSubmitted."""
        return {
            "gates": self.gates,
            "gates_from": self.origin,
            "facts": make_ref(self.facts) if self.facts else None,
        }


def choose_gates(
    of_request: GateSet | None, of_workflow: GateSet | None, of_settings: Path | None
) -> AnswerGates:
    """Return the gates of the request, or else of the workflow, or else of the settings.

    Raises:
        UserError: the file of the settings is not valid.
    """
    if of_request is not None:
        return AnswerGates.build(of_request, GatesFrom.JOB)
    if of_workflow is not None:
        return AnswerGates.build(of_workflow, GatesFrom.WORKFLOW)
    if of_settings is None:
        return AnswerGates()
    return AnswerGates.build(_default_gates(of_settings), GatesFrom.SETTINGS)


@lru_cache(maxsize=1)
def _default_gates(file: Path) -> GateSet:
    """Read the gates of the settings, once per process."""
    try:
        return read_gates(file)
    except ManyProblems:
        raise
    except UserError as error:
        raise UserError(f"HANDOFF_GATES: {error}") from error


@dataclass(frozen=True, slots=True)
class Request:
    """A job as a user requests it."""

    text: str
    """The request in plain words."""
    documents: Path | Mapping[str, bytes] | FolderReading | None = None
    """A folder, a file, or the documents themselves: a mapping of names such as `notes/a.pdf`
    to bytes, or the return value of `read_documents`.
    """
    strict_documents: bool = True
    """True: a file that cannot be read is an error. False: the job leaves the file out."""
    limits: JobLimits = field(default_factory=JobLimits)
    """The budget of the whole job."""
    model: str | None = None
    """The model of every agent of this job. None: each agent has its own model."""
    answer_schema: Mapping[str, Any] | None = None
    """A JSON Schema that the answer must match. None: the answer is Markdown."""
    specialists: tuple[str, ...] = ()
    """The only specialists that the job may use. Empty: all."""
    tenant: str = DEFAULT_TENANT
    """The owner of the job. Tenants take turns in every queue, have budgets of a day, and have
    separate idempotency keys.
    """
    priority: Priority | None = None
    """Interactive jobs come before batch jobs in every queue. None: the priority of the job in
    `after`, or HANDOFF_PRIORITY.
    """
    deadline_s: int | None = None
    """Seconds from submission to answer, in place of `limits.max_seconds`. While there is time,
    most calls go through batches of the provider at half price. It needs the priority `batch`.
    """
    idempotency_key: str | None = None
    """Requests of a tenant with the same key and the same content are one job."""
    mode: Mode | None = None
    """Mode of the job. None: HANDOFF_MODE. A workflow always has the mode `pipeline`."""
    workflow: Workflow | None = None
    """The workflow that gives the plan; see `read_workflow`."""
    items: Items = field(default_factory=Items)
    """Lines or rows over which steps of the workflow repeat; see `read_items`."""
    gates: Gates | None = None
    """Checks that the answer must pass. None, and no `facts`: the gates of the workflow, or
    else of HANDOFF_GATES.
    """
    facts: FactTable | None = None
    """Known facts that the claims of the answer are compared with; see `read_facts`."""
    rubric: Rubric | None = None
    """Criteria of the assessor, in every mode. None: the assessor's own, if there is a review."""
    is_reviewed: bool = True
    """False: no assessor reviews the results of a team, an adaptive job or a workflow. A plan with
    a step that acts on the world is reviewed in any case.
    """
    after: JobId | None = None
    """An ended job that this job continues. This job starts with its results, and with its
    documents if the request has none.
    """
    is_quoted: bool = False
    """True: the journal gets a quote of cost and time when the plan is made."""
    webhook_url: str | None = None
    """This URL gets a signed POST when the job has ended or waits for an approval."""
    on_end: Mapping[str, Any] | None = None
    """Signature of a task of the host's own Celery app, such as `notify.s(order=7)`.

    The supervisor sends the task to HANDOFF_ON_END_BROKER_URL when the job has ended.
    """
    approvals: Approvals | None = None
    """Subjects that a person approves before the job continues. None: no approval."""
    shares_runs: bool = True
    """False: no handoff of the job waits for an equal handoff and copies its result, and no other
    handoff copies a result of the job.
    """


def choose_answer_gates(request: Request, settings: Settings) -> AnswerGates:
    """Return the gates of the job's answer.

    Raises:
        UserError: the file in HANDOFF_GATES is needed, and cannot be used.
    """
    of_request = of_workflow = None
    if request.gates is not None or request.facts is not None:
        of_request = GateSet(request.gates or Gates(), request.facts)
    if request.workflow:
        of_workflow = request.workflow.gates
    return choose_gates(of_request, of_workflow, settings.gates)


def check_is_request(request: object) -> None:
    """Raise UserError if the caller passed another type, such as the words of a request."""
    hint = ""
    if isinstance(request, str):
        hint = f"write Request({request!r:.80})"
    check_type("the request", request, Request, hint)


def check_request(request: Request, settings: Settings) -> None:
    """Check a request without Redis.

    Raises:
        UserError: a field has another type, is empty or too long, or cannot be used. The message
            names the field.
    """
    check_is_request(request)
    limit = settings.max_request_chars
    check_documents(request.documents)
    check_types(request)
    if not request.text.strip():
        raise UserError("the request is empty: write a question or a task in plain words")
    if len(request.text) > limit:
        raise UserError(
            f"the request has {len(request.text):,} characters, more than {limit:,}: put long texts"
            " into documents (--docs)"
        )
    _check_encodable(request)
    check_tenant(request.tenant)
    check_names(request)
    if request.answer_schema is not None:
        _check_schema(request.answer_schema)
    if request.after is not None and not is_job_id(request.after):
        raise UserError(
            f"{request.after!r:.80} is not a job id: set after (--after) to an id such as"
            " j-k5tq2wbz7x3mhd4n"
        )
    if request.on_end is not None:
        end_task = parse_end_task(request.on_end)
        if settings.on_end_tasks is not None:  # else only the supervisors know
            check_allowed(end_task.task, settings.on_end_tasks)
    _check_deadline(request, settings)
    _check_mode(request)
    _check_depth(request)
    _check_review(request)
    _check_approvals(request.approvals or Approvals(), may_ask=_may_ask(request))
    _check_prices(request, settings)
    choose_answer_gates(request, settings)


def _check_schema(schema: Mapping[str, Any]) -> None:
    # imported here, because jsonschema takes as long to import as the other modules together
    from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, check_schema

    try:
        check_schema(dict(schema))
    except BrokenSchema as error:
        raise UserError(f"the answer schema {error}") from error


def _check_deadline(request: Request, settings: Settings) -> None:
    if request.deadline_s is None:
        return
    if not 1 <= request.deadline_s <= MAX_SECONDS:
        raise UserError(
            f"deadline_s (--deadline) must be from 1 to {MAX_SECONDS:,} seconds, not"
            f" {request.deadline_s:,}"
        )
    if (request.priority or settings.priority) is not Priority.BATCH:
        raise UserError(
            "deadline_s (--deadline) needs the priority batch: set priority (--priority batch), or"
            " limit the time with max_seconds (--timeout)"
        )


def _check_mode(request: Request) -> None:
    if request.mode is Mode.PIPELINE and request.workflow is None:
        raise UserError("mode pipeline needs a workflow: set workflow (--workflow NAME)")
    if request.workflow is not None and request.mode not in (None, Mode.PIPELINE):
        raise UserError(
            f"a workflow runs in mode pipeline, not in mode {request.mode}: remove mode (--mode) or"
            " workflow (--workflow)"
        )
    if request.workflow is None and (request.items.lines or request.items.rows):
        raise UserError(
            "items (--items) need a workflow whose steps repeat over them: set workflow (--workflow"
            " NAME)"
        )


def _get_workflow_steps(request: Request) -> Sequence[WorkflowStep]:
    if request.workflow is None:
        return ()
    return request.workflow.steps


def get_named_specialists(request: Request) -> set[str]:
    """Return the specialists that the request allows, and those of its workflow."""
    names = {*request.specialists, *(step.specialist for step in _get_workflow_steps(request))}
    return names - {CHILD_JOB_SPECIALIST}


def _check_depth(request: Request) -> None:
    for step in _get_workflow_steps(request):
        if step.specialist == CHILD_JOB_SPECIALIST and not request.limits.max_depth:
            raise UserError(
                f"step {step.id} needs a child job, and max_depth (--max-depth) is 0: raise"
                " it, or name a specialist"
            )


def _check_review(request: Request) -> None:
    if request.is_reviewed:
        return
    if request.rubric is not None:
        raise UserError(
            "a rubric (--rubric) needs a review: leave out is_reviewed=False (--no-review)"
        )
    for step in _get_workflow_steps(request):
        if step.after:
            raise UserError(
                f"step {step.id} waits for the review: leave out is_reviewed=False (--no-review)"
            )


def _may_ask(request: Request) -> bool:
    """Return whether the job can ask a person: an approval, or a step of the workflow."""
    if request.approvals and request.approvals.are_wanted:
        return True
    return request.workflow is not None and any(map(_may_ask_person, request.workflow.steps))


def _may_ask_person(step: WorkflowStep) -> bool:
    """Return whether a step may ask a person."""
    return step.on_failure is OnFailure.ASK or bool(step.approve)


def _check_approvals(approvals: Approvals, *, may_ask: bool) -> None:
    if approvals == APPROVE_AT_ONCE:
        return
    if approvals.timeout_s is not None and not may_ask:
        raise UserError(
            "timeout_s (--approve-timeout) needs an approval: add plan, research or answer to the"
            " approvals (--approve), or a workflow with `approve: true` or `on_failure: ask`"
        )
    if approvals.on_timeout is not OnTimeout.STOP and approvals.timeout_s is None:
        raise UserError(
            f"on_timeout (--on-timeout) is {approvals.on_timeout}, which needs a time: set"
            " timeout_s (--approve-timeout TIME)"
        )
    if ApprovalOf.COST in approvals.what:
        raise UserError(
            "cost approval needs a threshold: set above_microusd (--approve-above-usd X)"
        )


def _check_encodable(request: Request) -> None:
    """Check that all texts of a request can be encoded as UTF-8.

    Raises:
        UserError: a text has a lone surrogate.
    """
    if request.answer_schema is None:
        schema = None
    else:
        schema = json.dumps(request.answer_schema, ensure_ascii=False, default=str)
    texts = {
        "the request": request.text,
        "the model's name": request.model,
        "the tenant": request.tenant,
        "the idempotency key": request.idempotency_key,
        "the webhook": request.webhook_url,
        "a specialist's name": "".join(request.specialists),
        "the answer schema": schema,
    }
    for name, text in texts.items():
        if text is not None and has_lone_surrogate(text):
            raise UserError(
                f"{name} is not UTF-8 text: it holds half a character (a lone surrogate)"
            )


def _check_prices(request: Request, settings: Settings) -> None:
    """Check that the price of each model is known if a limit or an approval is in money.

    A model that the request names needs a price, also if this process works offline.

    Raises:
        UserError: the price of a model is not known.
    """
    bound = find_bound_in_money(request)
    if not bound:
        return
    names: list[str] = []
    if request.model:
        names.append(request.model)
    elif settings.is_offline:
        names.append(OFFLINE_MODEL)
    else:
        names += [settings.supervisor_model, settings.specialist_model]
    if not settings.is_offline and settings.review_model is not None:
        names.append(settings.review_model)
    prices = replace(build_prices(settings), is_free=False)
    for name in names:
        if not prices.has_price(name):
            raise UserError(_describe_missing_price(name, bound, prices))


def check_prices_of_specialists(
    request: Request, served: Mapping[str, ServedSpecialist], settings: Settings
) -> None:
    """If a limit or an approval is in money, check that prices are known. Each specialist that the
    request needs, and whose file names models, needs a model with a price.

    A client without a key makes no check. A worker refuses the call.

    Args:
        served: the specialists of the live workers.

    Raises:
        UserError: a needed specialist has no model with a known price.
    """
    bound = find_bound_in_money(request)
    if not bound or request.model or settings.is_offline:
        return
    prices = replace(build_prices(settings), is_free=False)
    faults: dict[str, str] = {}
    for name in get_named_specialists(request):
        specialist = served.get(name)
        if specialist is None or OFFLINE_MODEL in specialist.models:
            continue
        models = specialist.spec.models
        if specialist.spec.model is not None:
            models = (specialist.spec.model,)
        if models and not any(prices.has_price(model) for model in models):
            faults[name] = f"specialist {name}: {_describe_missing_price(models[0], bound, prices)}"
    for step in _get_workflow_steps(request):
        if step.specialist in faults:
            raise UserError(faults[step.specialist])
    if request.specialists and all(name in faults for name in request.specialists):
        raise UserError(faults[request.specialists[0]])


def find_bound_in_money(request: Request) -> str:
    """Return the name of the limit or the approval of the request that is in money, or ""."""
    if request.limits.max_microusd is not None:
        return "max_microusd (--max-usd)"
    if request.approvals and request.approvals.above_microusd is not None:
        return "above_microusd (--approve-above-usd)"
    return ""


def _describe_missing_price(model: str, bound: str, prices: Prices) -> str:
    """Return the error of a model without a known price."""
    fault = ""
    if prices.price_as is not None:
        fault = f", and the price of {prices.price_as} (HANDOFF_PRICE_AS) is not known either"
    return (
        f"the price of {model} is not known{fault}, so {bound} cannot be kept: set"
        " HANDOFF_PRICE_AS to a model with the same price"
    )
