"""Every setting, from the environment (`HANDOFF_...`). Read once, in an `app.py` or the CLI, and handed on.

Each has a type and, where it is a number, a lower and an upper bound. No error text holds a value: it may be a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.durations import seconds_in, whole_seconds_in
from shared.folders import expanded
from shared.http_values import (
    check_header_value,
    check_headers,
    check_server_url,
    proxy_problems,
)
from shared.redis_address import read_address
from shared.wire.errors import UserError
from shared.wire.limits import Depth, Dollars, Tokens
from shared.wire.message import each_problem
from shared.wire.mode import Mode
from shared.wire.priority import Priority

OFFLINE_MODEL = "offline"
"""The name of the embedded, deterministic, extractive model: no key, no network."""


DEFAULT_BASE_URL = "https://api.anthropic.com"
"""The SDK's own."""
DEFAULT_REDIS_URL = "redis://localhost:6379/0"
"""Celery's own habit; the CLI starts a private Redis instead where nothing is set."""

_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
MOST_NAME_CHARS = 200


def _header_value(value: SecretStr) -> SecretStr:
    check_header_value(value.get_secret_value())
    return value


def _server_url(value: str) -> str:
    check_server_url(value)
    return value


def _name(value: str) -> str:
    if not (value.strip() and value.isprintable() and len(value) <= MOST_NAME_CHARS):
        raise ValueError(f"must be one line of 1 to {MOST_NAME_CHARS} characters")
    return value


Duration = Annotated[float, BeforeValidator(seconds_in)]
"""Seconds. A text may have units, as `shared.durations` reads them: 500ms, 45s, 10m, 1h30m."""
Interval = Annotated[Duration, Field(ge=0.01, le=_DAY_S, allow_inf_nan=False)]
"""Seconds between two actions, or until one is given up."""
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]
"""A secret that is sent in an HTTP header."""
ServerUrl = Annotated[str, AfterValidator(_server_url)]
Name = Annotated[str, AfterValidator(_name)]

_HEADERS_OF_PROVIDERS = ("ANTHROPIC_FOUNDRY_API_KEY", "AWS_BEARER_TOKEN_BEDROCK")
_URLS_OF_PROVIDERS = (
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
)
_MORE_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
"""The SDK adds these to each request: `Name: value`, a line each."""


_BROKER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def is_broker_url(text: str) -> bool:
    """Return whether a text has the form of a broker's URL. Which brokers there are, kombu says."""
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text and "://" in text
    is_web = parts.scheme in ("http", "https")
    return is_plain and has_port and not is_web and bool(_BROKER_SCHEME.fullmatch(parts.scheme))


class Settings(BaseSettings):
    """Defaults suit one machine; a fleet sets `HANDOFF_REDIS_URL` and the model's key."""

    model_config = SettingsConfigDict(
        env_prefix="HANDOFF_",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    redis_url: SecretStr | None = None
    """Of broker, backend and ledger; `shared.redis_address` says what it looks like. None: the CLI starts a private Redis."""

    model_provider: Literal["anthropic", "bedrock", "vertex", "foundry"] = "anthropic"
    supervisor_model: Name = "claude-opus-5-5"
    """Tier `capable`: plans, reviews, synthesises."""
    specialist_model: Name = "claude-haiku-5-5"
    """Tier `cheap`: the specialists' default."""
    reviewer_model: Name | None = None
    """The model of the assessor and the judge. None: `supervisor_model`, or the job's own."""
    anthropic_api_key: HeaderValue | None = Field(
        default=None, validation_alias="ANTHROPIC_API_KEY"
    )
    anthropic_auth_token: HeaderValue | None = Field(
        default=None, validation_alias="ANTHROPIC_AUTH_TOKEN"
    )
    anthropic_base_url: ServerUrl | None = Field(
        default=None, validation_alias="ANTHROPIC_BASE_URL", repr=False
    )
    """Any server that speaks the Messages API. Not in `repr`: it may hold a password."""
    price_as: Name | None = None
    """The model whose price applies to names that the price table does not know."""
    offline: bool | None = None
    """True: the offline model whatever keys there are. None: only when there is neither key nor base URL."""

    priority: Priority = Priority.INTERACTIVE
    """Of a job that does not say it."""
    mode: Literal[Mode.AUTO, Mode.SINGLE, Mode.TEAM, Mode.ADAPTIVE] = Mode.AUTO
    """How a job is supervised that does not say so itself."""
    max_depth: Depth = 2
    """How deep sub-supervisors may go in a job that does not say so itself."""

    gates: Path | None = None
    """A file of gates, for jobs that have none of their own nor of a workflow."""

    specialists_dirs: Annotated[tuple[Path, ...], NoDecode] = ()
    """Folders of Markdown files that add to the built-in specialists or override them; several are separated as in PATH."""
    tools_dirs: Annotated[tuple[Path, ...], NoDecode] = ()
    """Folders of Python files with the user's own tools; several are separated as in PATH."""
    cache_dir: Path = Path("~/.cache/handoff")
    """Full-text indexes; may be deleted at any time."""

    lease_s: Duration = Field(default=15.0, gt=0.2, le=_DAY_S, allow_inf_nan=False)
    """How long a claim lives without renewal: a dead worker's handoffs run elsewhere after this."""
    sweep_interval_s: Interval = 1.0
    retention_s: Annotated[int, BeforeValidator(whole_seconds_in)] = Field(
        default=7 * _DAY_S, gt=60, le=10 * _YEAR_S
    )
    """How long an ended job and its documents stay."""
    keep_turns: bool = False
    """Whether the turns of a handoff that has ended stay as long as its job."""
    drain_s: Duration = Field(default=30.0, ge=0, le=_DAY_S, allow_inf_nan=False)
    """At SIGTERM: how long running turns may go on before the rest is handed back."""
    model_silence_s: Interval = 120.0
    """The longest silence on the wire of a model call."""
    model_progress_s: Interval = 300.0
    """The longest time in which a model call brings nothing but signs of life."""
    rate_window_s: Interval = 60.0
    """The time that the provider's rate limits are given for: Anthropic's are per minute."""
    memory_mark: float = Field(default=0.8, gt=0, le=1, allow_inf_nan=False)
    """The part of Redis's maxmemory above which no new job is taken: the rest is for those that run."""
    rate_wait_s: Interval = 20.0
    """A handoff that must wait longer for the provider's rate limits frees its slot meanwhile."""
    max_request_chars: int = Field(default=100_000, ge=1, le=10_000_000)
    max_document_bytes: int = Field(default=20_000_000, ge=1, le=500_000_000)
    """The upper bound is about that of a Redis string, 512 MB."""
    max_documents: int = Field(default=10_000, ge=1, le=1_000_000)
    day_usd: Dollars | None = None
    """The most that all jobs together may cost in a day (UTC)."""
    day_tokens: Tokens | None = None
    """The most input and output tokens of all jobs together in a day."""
    tenant_day_usd: Dollars | None = None
    """The most that the jobs of each tenant may cost in a day."""
    tenant_day_tokens: Tokens | None = None
    webhook_secret: HeaderValue | None = None
    """Signs completion webhooks (HMAC-SHA256)."""
    on_end_broker_url: SecretStr | None = None
    """The broker of the host's own Celery app, for tasks that are sent when a job has ended."""
    on_end_tasks: Annotated[tuple[str, ...] | None, NoDecode] = None
    """Patterns of the names of tasks that may be sent there (`fnmatch`). None: a supervisor sends no
    task, and a client leaves the check to the supervisor."""
    host_broker_url: SecretStr | None = None
    """The broker of the host's own Celery app, for steps that are tasks of that app (`celery_task`)."""
    host_result_url: SecretStr | None = None
    """The result backend of that app, from which a worker reads the end of such a task."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("redis_url")
    @classmethod
    def _usable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            read_address(value.get_secret_value())
        return value

    @field_validator("on_end_broker_url", "host_broker_url", "host_result_url")
    @classmethod
    def _is_broker(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and not is_broker_url(value.get_secret_value()):
            kind = "result backend" if info.field_name == "host_result_url" else "broker"
            raise ValueError(f"must be the URL of a {kind}, such as redis://host:6379/0")
        return value

    @field_validator("on_end_tasks", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        """Split a list at its commas."""
        if not isinstance(value, str):
            return value
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("specialists_dirs", "tools_dirs", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        """A list as PATH writes it; a JSON list is understood, too."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return [part for part in value.split(os.pathsep) if part]

    @field_validator("specialists_dirs", "tools_dirs")
    @classmethod
    def _expanded(cls, folders: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        try:
            return tuple(
                expanded(folder, f"HANDOFF_{str(info.field_name).upper()}") for folder in folders
            )
        except UserError as error:
            raise ValueError(str(error)) from None

    @property
    def cache_folder(self) -> Path:
        """Return `cache_dir` with its home folder.

        Raises:
            UserError: this user has no home folder; names HANDOFF_CACHE_DIR.
        """
        return expanded(self.cache_dir, "HANDOFF_CACHE_DIR")

    @property
    def is_offline(self) -> bool:
        """Whether the offline model answers."""
        if self.offline is not None:
            return self.offline
        return (
            self.model_provider == "anthropic"
            and self.anthropic_api_key is None
            and self.anthropic_auth_token is None
            and self.anthropic_base_url is None
        )


def load_settings() -> Settings:
    """Return the settings of this process.

    Raises:
        UserError: naming the variables that are wrong, without their values.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(f"{_variable(where)}: {what}" for where, what in each_problem(error))
        raise UserError(
            f"a setting in the environment is wrong: {wrong}"
        ) from None  # pydantic's own text would quote the value
    if wrong := "; ".join(_problems_beside(settings)):
        raise UserError(f"a setting in the environment is wrong: {wrong}")
    return settings


def _problems_beside(settings: Settings) -> Iterator[str]:
    """Name the variables that the model's client reads itself and that no request could be made with."""
    if settings.is_offline:
        return
    checks = {
        **dict.fromkeys(_HEADERS_OF_PROVIDERS, check_header_value),
        **dict.fromkeys(_URLS_OF_PROVIDERS, check_server_url),
        _MORE_HEADERS: check_headers,
    }
    for name, check in checks.items():
        if value := os.environ.get(name):
            try:
                check(value)
            except ValueError as error:
                yield f"{name}: {error}"
    yield from proxy_problems(settings.anthropic_base_url or DEFAULT_BASE_URL, os.environ)


def _variable(place: tuple[str, ...]) -> str:
    """Return the environment variable of a field in which pydantic found a problem."""
    name = place[0] if place else "setting"
    return name if name.isupper() else f"HANDOFF_{name.upper()}"


def redis_url_of(settings: Settings) -> str:
    """Here and not in `shared.process`: a client needs the URL, and none of what a worker loads."""
    return settings.redis_url.get_secret_value() if settings.redis_url else DEFAULT_REDIS_URL
