"""Limits in the files of specialists, which `handoff doctor` compares with their models. Requests
that are cleared or summarized too late fail, or cost more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from handoff_queue.shared.agent.prices import PROVIDERS, Prices, PromptLimits
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.cli.doctor_processes import Finding, Level
from handoff_queue.supervisor.text.sanitizing import plain


def of_contexts(announcements: Iterable[Announcement], price_as: str | None) -> Iterator[Finding]:
    """Yield a warning for each limit in `context` that its model cannot have, or that lets requests
    pass a price step. A model whose limits genai-prices does not know gives no finding.

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
            for model in _models(spec, announcement):
                findings = _of_model(spec, model, prices)
                yield from (finding for finding in findings if finding not in seen)
                seen.update(findings)


def _models(spec: SpecialistSpec, announcement: Announcement) -> tuple[str, ...]:
    """Return the models that may serve a specialist in a worker."""
    if spec.models:
        return spec.models
    model = spec.model or announcement.models.get(spec.name)
    return (model,) if model else ()


def _of_model(spec: SpecialistSpec, model: str, prices: Prices) -> list[Finding]:
    if spec.context is None:
        return []
    try:
        known = prices.prompt_limits(model)
    except UserError:  # the package with the prices is not installed
        return []
    findings: list[Finding] = []
    for field in ("clear_tools_at", "compact_at"):
        tokens: int | None = getattr(spec.context, field)
        if tokens is None:
            continue
        problem = _problem(tokens, known)
        if problem is not None:
            report = f"context.{field} is {tokens:,} tokens; {plain(model)} {problem}"
            fix = f"lower context.{field} in the file of {spec.name}"
            findings.append(Finding(Level.WARN, f"specialist {spec.name}", report, fix))
    return findings


def _problem(tokens: int, known: PromptLimits) -> str | None:
    """Return the problem with a limit, or None."""
    if known.window is not None and tokens >= known.window:
        return f"has a context window of {known.window:,}, so the server refuses requests first"
    if known.price_step is not None and tokens > known.price_step:
        return f"has a higher price above {known.price_step:,}"
    return None
