"""The page of all settings, from their class."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from docs.generator.markdown import build_table, format_code, join_parts, read_attribute_docstrings
from handoff_queue.shared.settings.settings import (
    MAX_FOLDERS,
    MAX_NAME_CHARS,
    MAX_PATTERNS,
    Folders,
    Patterns,
    Settings,
)

INTRODUCTION = """\
# Settings

Every setting is an environment variable. [Configuration](configuration.md) says how a value is written, and lists variables that one
command or one file reads.

"Read by" names the processes that need the variable. A *client* is a program that submits jobs: `handoff run`, `handoff submit`, `handoff
quote`, `handoff serve`, or your web backend.
"""  # noqa: E501 - lines of a text
GROUPS: dict[str, dict[str, str]] = {
    "The broker": {"redis_url": "all", "redis_url_file": "all"},
    "The model": {
        "anthropic_api_key": "supervisor, workers",
        "anthropic_auth_token": "supervisor, workers",
        "anthropic_base_url": "supervisor, workers",
        "model_provider": "all",
        "supervisor_model": "all",
        "specialist_model": "all",
        "review_model": "all",
        "role_effort": "supervisor",
        "role_thinking": "supervisor",
        "job_model": "workers",
        "price_as": "all",
        "offline": "all",
        "model_silence_s": "supervisor, workers",
        "model_progress_s": "supervisor, workers",
        "rate_window_s": "supervisor, workers",
        "rate_wait_s": "supervisor, workers",
        "batch_poll_s": "supervisor, workers",
    },
    "Specialists and tools": {
        "specialists_dirs": "workers; supervisors with keys",
        "check_specialists": "supervisors",
        "tools_dirs": "workers",
        "policy_file": "workers",
        "tenant_credential_function": "workers",
        "tool_memory_bytes": "workers",
        "tool_cpu_s": "workers",
        "tool_file_bytes": "workers",
        "tool_open_files": "workers",
        "tool_processes": "workers",
        "cache_dir": "workers, `handoff run`",
    },
    "Jobs": {
        "mode": "client",
        "priority": "client",
        "max_depth": "client",
        "gates": "client",
    },
    "Recovery and shutdown": {
        "lease_s": "supervisor, workers",
        "sweep_interval_s": "supervisor",
        "drain_s": "supervisor, workers",
        "keep_turns": "supervisor, workers",
        "retention_s": "all",
    },
    "Keys": {"keys": "all", "signing_key": "all"},
    "Budgets of a day": {
        "day_usd": "supervisor",
        "day_tokens": "supervisor",
        "tenant_day_usd": "supervisor",
        "tenant_day_tokens": "supervisor",
        "tenant_open_jobs": "supervisor",
    },
    "Encryption of tenants": {
        "tenant_keys": "all",
        "tenant_key_function": "all",
        "tenant_key_cache_s": "all",
    },
    "Limits of a request": {
        "memory_mark": "client",
        "max_request_chars": "client",
        "max_document_bytes": "client",
        "max_documents": "client",
    },
    "The HTTP API": {
        "serve_max_body_bytes": "`handoff serve`",
        "serve_requests_per_minute": "`handoff serve`",
        "serve_streams": "`handoff serve`",
        "serve_proxies": "`handoff serve`",
        "serve_user_header": "`handoff serve`",
        "serve_groups_header": "`handoff serve`",
        "serve_access": "`handoff serve`",
        "serve_tenant_header": "`handoff serve`",
    },
    "Your own application": {
        "webhook_secret": "supervisor",
        "webhook_private_hosts": "supervisor",
        "on_end_broker_url": "supervisor",
        "on_end_tasks": "supervisor, client",
        "host_broker_url": "worker",
        "host_result_url": "worker",
    },
    "Logs": {"log_level": "supervisor, workers"},
}
"""Heading of the page -> setting -> processes that read the setting."""
KINDS = {
    "RedisUrl": "URL",
    "BrokerUrl": "URL of a broker",
    "ResultUrl": "URL of a result backend",
    "ServerUrl": "http or https URL",
    "HeaderValue": "text for a header",
    "Name": f"model name, 1 to {MAX_NAME_CHARS} characters",
    "PlainPath": "path",
    "bool": "`true`, `false`",
    "Dollars": "USD",
    "Tokens": "tokens",
    "Depth": "levels",
    "WholeSeconds": "whole seconds",
    "Duration": "seconds",
    "Interval": "seconds",
    "Folders": f"up to {MAX_FOLDERS} folders, separated as in `PATH`",
    "FunctionName": "`module:name`",
    "HeaderName": "name of a header",
    "Networks": f"up to {MAX_PATTERNS} IP addresses or networks, separated by commas",
    "Hosts": f"up to {MAX_PATTERNS} hosts, separated by commas",
    "GroupAccess": f"up to {MAX_PATTERNS} texts `GROUP=LEVEL`, separated by commas",
    "RoleEfforts": "texts `ROLE=EFFORT`, separated by commas",
    "RoleThinking": "texts `ROLE=THINKING`, separated by commas",
    "Patterns": f"up to {MAX_PATTERNS} patterns, separated by commas",
}
"""Name of a type in the class -> what a user writes."""
UNITS = {
    "memory_mark": "part of `maxmemory`",
    "max_request_chars": "characters",
    "max_document_bytes": "bytes",
    "max_documents": "files",
    "tool_memory_bytes": "bytes",
    "tool_cpu_s": "seconds",
    "tool_file_bytes": "bytes",
    "tool_open_files": "files",
    "tool_processes": "processes",
    "serve_max_body_bytes": "bytes",
    "serve_requests_per_minute": "requests",
    "serve_streams": "streams",
    "tenant_open_jobs": "jobs",
}
"""Unit of each setting that is a plain number."""
NOTES = {
    "The model": (
        """\
Without a key, a token and a base URL, the offline model answers: it quotes and arranges documents, and says so in each answer.

A client checks the price of a job's model with its own settings. Give clients the same model settings as the workers. A worker that
does not know a price refuses the calls of a job that has a limit in money.
"""  # noqa: E501 - lines of a text
    ),
    "Budgets of a day": (
        """\
A day is a UTC day by Redis's clock. A supervisor writes these limits into Redis when it starts. They hold at once for all processes, until
a supervisor starts with other limits. [Budgets](../concepts/budgets.md) describes how they are kept.
"""  # noqa: E501 - lines of a text
    ),
    "Limits of a request": "The client checks these limits when it submits a job.\n",
}


def build_page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for heading, group in GROUPS.items():
        parts += [f"## {heading}\n", NOTES.get(heading, ""), build_group_table(group)]
    return join_parts(parts)


def build_group_table(group: dict[str, str]) -> str:
    texts = read_attribute_docstrings(Settings)
    rows: list[tuple[str, str, str, str, str]] = []
    for name, readers in group.items():
        rows.append(
            (
                format_code(get_variable(name)),
                default(name),
                describe_kind(name),
                readers,
                texts[name],
            )
        )
    return build_table(["Variable", "Default", "Unit and bounds", "Read by", "What it does"], rows)


def get_variable(name: str) -> str:
    """Return the environment variable of a setting."""
    alias = Settings.model_fields[name].validation_alias
    return str(alias or f"HANDOFF_{name.upper()}")


def default(name: str) -> str:
    """Return the default as a user types it."""
    value = Settings.model_fields[name].default
    match value:
        case None | ():
            return "not set"
        case StrEnum():
            return format_code(value.value)
        case bool():
            return format_code(json.dumps(value))
        case float():
            return format_code(f"{value:g}")
        case _:
            return format_code(str(value))


def describe_kind(name: str) -> str:
    """Return the type, the unit and the bounds of a setting, or its choices."""
    field = Settings.model_fields[name]
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    if is_enumeration(field.annotation):
        members: Any = field.annotation
        choices = list(map(str, members))
    if choices:
        return ", ".join(map(format_code, choices))
    written = str(Settings.__annotations__[name]).removesuffix(" | None")
    text = UNITS.get(name) or KINDS[written]
    return ", ".join([text, *list_bounds(field)])


def is_enumeration(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, StrEnum)


def list_bounds(field: FieldInfo) -> list[str]:
    """Return the bounds of a number, the lower one first."""
    if field.annotation in (get_args(Folders)[0], get_args(Patterns)[0]):
        return []
    constraints = list(field.metadata)
    for member in get_args(field.annotation):
        for part in getattr(member, "__metadata__", ()):
            constraints += getattr(part, "metadata", [part])
    texts: list[str] = []
    for bound in constraints:
        match bound:
            case Gt(gt=limit):
                texts.append(f"> {format_number(limit)}")
            case Ge(ge=limit):
                texts.append(f"≥ {format_number(limit)}")
            case Lt(lt=limit):
                texts.append(f"< {format_number(limit)}")
            case Le(le=limit):
                texts.append(f"≤ {format_number(limit)}")
    return texts


def format_number(limit: Any) -> str:
    """Return a number with thousands separators and without trailing zeros."""
    return f"{limit:,f}".rstrip("0").rstrip(".")
