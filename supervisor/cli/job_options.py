"""Options of one job, shared by `run`, `submit` and `quote`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import Any, get_type_hints

from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.supervisor.cli.options import (
    After,
    AnswerSchema,
    Approve,
    ApproveAboveUsd,
    ApproveTimeout,
    Docs,
    GatesOption,
    ItemsOption,
    MaxDepth,
    MaxJobTurns,
    MaxRounds,
    MaxTokens,
    MaxTurns,
    MaxUsd,
    Model,
    ModeOption,
    OnLimitOption,
    OnTimeoutOption,
    PriorityOption,
    RubricOption,
    StrictDocs,
    TenantOption,
    Timeout,
    WorkflowOption,
)
from handoff_queue.supervisor.cli.request_options import (
    RequestOptions,
    gates_of,
    rubric_of,
    schema_of,
)


@dataclass(frozen=True)
class JobOptions:
    """The options of one job, in the order of the help."""

    docs: Docs = None
    model: Model = None
    mode: ModeOption = None
    max_usd: MaxUsd = None
    timeout: Timeout = None
    workflow: WorkflowOption = None
    items: ItemsOption = None
    after: After = None
    strict_docs: StrictDocs = False
    gates: GatesOption = None
    rubric: RubricOption = None
    max_rounds: MaxRounds = None
    max_tokens: MaxTokens = None
    max_turns: MaxTurns = None
    max_job_turns: MaxJobTurns = None
    on_limit: OnLimitOption = None
    approve: Approve = field(default_factory=list)
    approve_above_usd: ApproveAboveUsd = None
    approve_timeout: ApproveTimeout = None
    on_timeout: OnTimeoutOption = None
    answer_schema: AnswerSchema = None
    priority: PriorityOption = None
    tenant: TenantOption = DEFAULT_TENANT
    max_depth: MaxDepth = None

    def asked(self) -> RequestOptions:
        """Return the options without the request. Read the files that they name.

        Raises:
            UserError: a file cannot be used.
        """
        given: dict[str, Any] = {}
        for option in fields(self):
            given[option.name] = getattr(self, option.name)
        read = {
            "gates": gates_of(self.gates),
            "rubric": rubric_of(self.rubric),
            "answer_schema": schema_of(self.answer_schema),
        }
        times = {
            "timeout_s": given.pop("timeout"),
            "approve_timeout_s": given.pop("approve_timeout"),
        }
        return RequestOptions("", **{**given, **read, **times, "approve": tuple(self.approve)})


def takes_a_job(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the parameter `job` of a command by the options of JobOptions.

    Typer reads the options from the signature and the annotations of the returned function.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "job":
            parameters += _job_parameters()
        else:
            parameters.append(
                parameter.replace(
                    annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY
                )
            )

    @wraps(command)
    def with_options(**values: Any) -> int:
        of_job: dict[str, Any] = {}
        for option in fields(JobOptions):
            of_job[option.name] = values.pop(option.name)
        return command(job=JobOptions(**of_job), **values)

    annotations: dict[str, Any] = {}
    for parameter in parameters:
        annotations[parameter.name] = parameter.annotation
    with_options.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    with_options.__annotations__ = annotations | {"return": int}
    return with_options


def _job_parameters() -> list[inspect.Parameter]:
    """Return one keyword parameter for each field of JobOptions, with its default."""
    hints = get_type_hints(JobOptions, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for option in fields(JobOptions):
        default: Any = option.default
        if option.default_factory is not MISSING:
            default = option.default_factory()
        parameters.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=hints[option.name],
            )
        )
    return parameters
