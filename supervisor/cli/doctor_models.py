"""Retirement days and missing abilities of models, as the provider names them for `handoff doctor`.

Only the provider has this endpoint. A server without it, or with another answer, gives no finding.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.cli.doctor_processes import Finding, Level
from handoff_queue.supervisor.text.sanitizing import plain

WITHIN_S = 5.0
_OPTIONS = ("effort", "thinking")
"""Capabilities that a specialist's file can use."""


def named_models(
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


def of_models(
    base: str, headers: Mapping[str, str], models: Mapping[str, Collection[str]]
) -> Iterator[Finding]:
    """Yield a finding for each model that retires or lacks a capability.

    Args:
        base: base URL of the model's server.
        headers: headers with the key.
        models: see `named_models`.
    """
    for name, users in models.items():
        facts = _facts(f"{base}/v1/models/{quote(name, safe='')}", headers)
        yield from _retirement(plain(name), facts, users)
        lacking = [option for option in _OPTIONS if _lacks(facts, option)]
        if lacking:
            report = f"{plain(name)} has no {' and no '.join(lacking)}; its calls leave it out"
            yield Finding(Level.OK, "this shell: model", report, "")


def _retirement(name: str, facts: Mapping[str, Any], users: Collection[str]) -> Iterator[Finding]:
    if facts.get("lifecycle") not in ("deprecated", "retired"):
        return
    report = f"{name} is {facts['lifecycle']}"
    if isinstance(facts.get("retires_at"), str):
        report += f" and retires on {plain(facts['retires_at'])[:10]}"
    fix = "choose another model: HANDOFF_SUPERVISOR_MODEL, HANDOFF_SPECIALIST_MODEL"
    if users:
        fix = f"choose another model in the files of these specialists: {', '.join(users)}"
    yield Finding(Level.WARN, "this shell: model", report, fix)


def _lacks(facts: Mapping[str, Any], option: str) -> bool:
    """Return whether the server says that the model does not support an option."""
    capabilities = facts.get("capabilities")
    if not isinstance(capabilities, dict) or not isinstance(capabilities.get(option), dict):
        return False
    return capabilities[option].get("supported") is False


def _facts(url: str, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the server's facts about a model; empty if it gives none."""
    try:
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 (http and https only)
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:  # noqa: S310
            value = json.loads(response.read())
    except (OSError, ValueError, HTTPException):
        return {}
    if isinstance(value, dict):
        return value
    return {}
