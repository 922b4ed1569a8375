"""Models of specialists for `handoff doctor`: retirement days and missing abilities, and limits in
the files of specialists that do not fit their models.

Only the provider has the endpoint that names days and abilities. A server without it, or with
another answer, gives no finding. Requests that are cleared or summarized too late fail, or cost
more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from handoff_queue.shared.agent.prices import PROVIDERS, USUAL_WINDOW, Prices, PromptLimits
from handoff_queue.shared.providers.model_facts import (
    EFFORT,
    THINKING,
    ModelServer,
    lacks,
    without_code,
)
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.context_edits import (
    COMPACTION_BETA,
    ContextEdit,
    read_edits,
)
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.names import ROLES
from handoff_queue.shared.types.origins import CODE_EXECUTION
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import SpecialistSpec, Tier
from handoff_queue.supervisor.cli.doctor_processes import CheckLevel, Finding
from handoff_queue.supervisor.roles.briefs import configure_role
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

Place = tuple[str, ...]
"""Names that lead to a capability in the facts of a model."""


def group_specialists_by_model(
    defaults: Iterable[str], specialists: Iterable[SpecialistSpec]
) -> dict[str, list[str]]:
    """Return the models in use, each with the specialists whose files name it."""
    users: dict[str, list[str]] = {name: [] for name in defaults}
    for spec in specialists:
        names = spec.models or ()
        if spec.model is not None:
            names = (spec.model,)
        for name in names:
            users.setdefault(name, []).append(spec.name)
    return users


def group_specialists_by_managed_model(
    specialists: Iterable[SpecialistSpec], defaults: Mapping[Tier, str]
) -> dict[str, list[str]]:
    """Return the models of the specialists whose contexts the provider manages, each with the names
    of these specialists.

    Args:
        defaults: models of specialists whose files name none.
    """
    users: dict[str, list[str]] = {}
    for spec in specialists:
        if spec.context is None or not spec.context.is_managed_by_provider:
            continue
        for name in spec.models or (spec.model or defaults[spec.tier],):
            users.setdefault(name, []).append(spec.name)
    return users


def group_specialists_by_option(
    specialists: Iterable[SpecialistSpec], defaults: Mapping[Tier, str]
) -> dict[str, dict[Place, list[str]]]:
    """Return the models of specialists and roles with an `effort` or a `thinking`. Each model has
    the places of these levels and types, and each place has the names of the specialists and roles.

    Args:
        defaults: see `group_specialists_by_managed_model`.
    """
    users: dict[str, dict[Place, list[str]]] = {}
    for spec in specialists:
        places: list[Place] = []
        if spec.effort is not None:
            places.append((*EFFORT, spec.effort.value))
        if spec.thinking is not None:
            places.append((*THINKING, "types", spec.thinking.value))
        if not places:
            continue
        for name in spec.models or (spec.model or defaults[spec.tier],):
            of_model = users.setdefault(name, {})
            for place in places:
                of_model.setdefault(place, []).append(spec.name)
    return users


def list_configured_roles(settings: Settings) -> list[SpecialistSpec]:
    """Return the roles with an effort or a thinking in the settings, each with its model."""
    models = Models(settings)
    specs: list[SpecialistSpec] = []
    for name in ROLES:
        spec = configure_role(name, settings)
        if spec.effort is None and spec.thinking is None:
            continue
        model = models.choose_name(settings.job_model, spec)
        specs.append(spec.model_copy(update={"model": model}))
    return specs


def check_managed_context(facts: object, name: str, users: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for a model whose provider does not clear results or write summaries.

    Args:
        facts: the server's facts about the model.
        users: specialists whose contexts the provider manages.
    """
    has_edits = read_edits(facts)
    lacking = [edit.value for edit in ContextEdit if edit not in has_edits]
    if users and lacking:
        report = (
            f"{replace_unsafe(name)} has no {' and no '.join(lacking)}; the workers do it"
            f" themselves for {', '.join(users)}"
        )
        yield Finding(CheckLevel.OK, "this shell: model", report, "")


def check_models(
    server: ModelServer,
    models: Mapping[str, Collection[str]],
    managed: Mapping[str, Collection[str]] | None = None,
    options: Mapping[str, Mapping[Place, Collection[str]]] | None = None,
) -> Iterator[Finding]:
    """Yield a finding for each model that retires or lacks a capability.

    Args:
        models: see `group_specialists_by_model`.
        managed: see `group_specialists_by_managed_model`.
        options: see `group_specialists_by_option`.
    """
    managed = managed or {}
    options = options or {}
    for name in dict.fromkeys([*models, *managed, *options]):
        users = models.get(name, ())
        betas = [COMPACTION_BETA] if name in managed else []
        facts = server.fetch_facts(name, betas)
        yield from _check_retirement(replace_unsafe(name), facts, users)
        lacking = [place[0] for place in (EFFORT, THINKING) if lacks(facts, place)]
        if lacking:
            report = (
                f"{replace_unsafe(name)} has no {' and no '.join(lacking)}; its calls leave it out"
            )
            yield Finding(CheckLevel.OK, "this shell: model", report, "")
        for place, askers in options.get(name, {}).items():
            if place[0] not in lacking and lacks(facts, place):
                report = (
                    f"{replace_unsafe(name)} has no `{place[0]}: {place[-1]}`; the calls for"
                    f" {', '.join(askers)} leave it out"
                )
                yield Finding(CheckLevel.OK, "this shell: model", report, "")
        yield from check_managed_context(facts, name, managed.get(name, ()))


def _check_retirement(
    name: str, facts: Mapping[str, Any], users: Collection[str]
) -> Iterator[Finding]:
    if facts.get("lifecycle") not in ("deprecated", "retired"):
        return
    report = f"{name} is {facts['lifecycle']}"
    if isinstance(facts.get("retires_at"), str):
        report += f" and retires on {replace_unsafe(facts['retires_at'])[:10]}"
    fix = "choose another model: HANDOFF_SUPERVISOR_MODEL, HANDOFF_SPECIALIST_MODEL"
    if users:
        fix = f"choose another model in the files of these specialists: {', '.join(users)}"
    yield Finding(CheckLevel.WARN, "this shell: model", report, fix)


def check_code_execution(
    server: ModelServer, settings: Settings, specialists: Iterable[SpecialistSpec]
) -> Iterator[Finding]:
    """Yield a warning for each model without code execution whose specialist needs it."""
    for spec in specialists:
        if CODE_EXECUTION not in spec.tools:
            continue
        choices = Models(settings).list_choices(settings.job_model, spec)
        for model, remedy in without_code(server, [choice.name for choice in choices]):
            report = (
                f"{replace_unsafe(model)} has no code execution, which `sandbox: provider` needs"
            )
            yield Finding(
                CheckLevel.WARN, f"specialist {spec.name}", report, replace_unsafe(remedy)
            )


def check_contexts(
    announcements: Iterable[Announcement], price_as: str | None
) -> Iterator[Finding]:
    """Yield a warning for each limit in `context` that its model cannot have, or that lets requests
    pass a price step. The window of a model that genai-prices does not know is `USUAL_WINDOW`.

    Args:
        price_as: model whose limits apply to unknown models.
    """
    seen = set[Finding]()
    for announcement in announcements:
        provider = PROVIDERS.get(announcement.model)
        if provider is None:  # the offline model
            continue
        prices = Prices(provider, price_as)
        for spec in announcement.specialists:
            for model in _list_models(spec, announcement):
                findings = _check_context(spec, model, prices)
                yield from (finding for finding in findings if finding not in seen)
                seen.update(findings)


def _list_models(spec: SpecialistSpec, announcement: Announcement) -> tuple[str, ...]:
    """Return the models that may serve a specialist in a worker."""
    if spec.models:
        return spec.models
    model = spec.model or announcement.models.get(spec.name)
    return (model,) if model else ()


def _check_context(spec: SpecialistSpec, model: str, prices: Prices) -> list[Finding]:
    if spec.context is None:
        return []
    try:
        known = prices.get_prompt_limits(model)
    except UserError:  # the package with the prices is not installed
        return []
    findings: list[Finding] = []
    for field in ("clear_tools_at", "compact_at"):
        tokens: int | None = getattr(spec.context, field)
        if tokens is None:
            continue
        problem = _find_problem(tokens, known)
        fix = f"lower context.{field} in the file of {spec.name}"
        if known == PromptLimits() and tokens >= USUAL_WINDOW and model != OFFLINE_MODEL:
            problem = f"is not known, so its context window counts as {USUAL_WINDOW:,}"
            fix += ", or set HANDOFF_PRICE_AS to a known model with the same window"
        if problem is not None:
            report = f"context.{field} is {tokens:,} tokens; {replace_unsafe(model)} {problem}"
            findings.append(Finding(CheckLevel.WARN, f"specialist {spec.name}", report, fix))
    return findings


def _find_problem(tokens: int, known: PromptLimits) -> str | None:
    """Return the problem with a limit, or None."""
    if known.window is not None and tokens >= known.window:
        return f"has a context window of {known.window:,}, so the server refuses requests first"
    if known.price_step is not None and tokens > known.price_step:
        return f"has a higher price above {known.price_step:,}"
    return None
