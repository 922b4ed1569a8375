"""Every setting, from the environment (`HANDOFF_...`). Read once, in an `app.py` or the CLI, and handed on."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.redis_address import read_address
from shared.wire.errors import UserError
from shared.wire.limits import MOST_DEPTH
from shared.wire.message import each_problem
from shared.wire.mode import Mode
from shared.wire.priority import Priority

OFFLINE_MODEL = "offline"
"""The name of the embedded, deterministic, extractive model: no key, no network."""


DEFAULT_REDIS_URL = "redis://localhost:6379/0"
"""Celery's own habit; the CLI starts a private Redis instead where nothing is set."""


Dollars = Annotated[float, Field(ge=0.000_001, le=1_000_000_000, allow_inf_nan=False)]
"""The books count whole micro-dollars."""


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
    supervisor_model: str = "claude-opus-5-5"
    """Tier `capable`: plans, reviews, synthesises."""
    specialist_model: str = "claude-haiku-5-5"
    """Tier `cheap`: the specialists' default."""
    reviewer_model: str | None = None
    """Of those who judge the work of others. None: `supervisor_model`, or the job's own."""
    anthropic_api_key: SecretStr | None = Field(default=None, validation_alias="ANTHROPIC_API_KEY")
    anthropic_auth_token: SecretStr | None = Field(
        default=None, validation_alias="ANTHROPIC_AUTH_TOKEN"
    )
    anthropic_base_url: str | None = Field(default=None, validation_alias="ANTHROPIC_BASE_URL")
    """Any server that speaks the Messages API."""
    price_as: str | None = None
    """The model whose price applies to names that the price table does not know."""
    offline: bool | None = None
    """True: the offline model whatever keys there are. None: only when there is neither key nor base URL."""

    priority: Priority = Priority.INTERACTIVE
    """Of a job that does not say it."""
    mode: Literal[Mode.AUTO, Mode.SINGLE, Mode.TEAM, Mode.ADAPTIVE] = Mode.AUTO
    """How a job is supervised that does not say so itself."""
    max_depth: int = Field(default=2, ge=0, le=MOST_DEPTH)
    """How deep sub-supervisors may go in a job that does not say so itself."""

    gates: Path | None = None
    """A file of gates, for jobs that have none of their own nor of a workflow."""

    specialists_dirs: Annotated[tuple[Path, ...], NoDecode] = ()
    """Folders of Markdown files that add to the built-in specialists or override them; several are separated as in PATH."""
    tools_dirs: Annotated[tuple[Path, ...], NoDecode] = ()
    """Folders of Python files with the user's own tools; several are separated as in PATH."""
    cache_dir: Path = Path("~/.cache/handoff")
    """Full-text indexes; may be deleted at any time."""

    lease_s: float = Field(default=15.0, gt=0.2)
    """How long a claim lives without renewal: a dead worker's handoffs run elsewhere after this."""
    sweep_interval_s: float = Field(default=1.0, gt=0)
    retention_s: int = Field(default=7 * 86_400, gt=60)
    """How long an ended job and its documents stay."""
    keep_turns: bool = False
    """Whether the turns of a handoff that has ended stay as long as its job."""
    drain_s: float = Field(default=30.0, ge=0)
    """At SIGTERM: how long running turns may go on before the rest is handed back."""
    model_silence_s: float = Field(default=120.0, gt=0)
    """The longest silence on the wire of a model call."""
    model_progress_s: float = Field(default=300.0, gt=0)
    """The longest time in which a model call brings nothing but signs of life."""
    rate_window_s: float = Field(default=60.0, gt=0)
    """The time that the provider's rate limits are given for: Anthropic's are per minute."""
    memory_mark: float = Field(default=0.8, gt=0, le=1)
    """The part of Redis's maxmemory above which no new job is taken: the rest is for those that run."""
    park_after_s: float = Field(default=20.0, gt=0)
    """A handoff that must wait longer for the provider's rate limits frees its slot meanwhile."""
    max_request_chars: int = 100_000
    max_document_bytes: int = 20_000_000
    max_documents: int = 10_000
    day_usd: Dollars | None = None
    """The most that all jobs together may cost in a day (UTC)."""
    day_tokens: int | None = Field(default=None, gt=0)
    """Input and output tokens, the same."""
    tenant_day_usd: Dollars | None = None
    """The most that the jobs of each tenant may cost in a day."""
    tenant_day_tokens: int | None = Field(default=None, gt=0)
    webhook_secret: SecretStr | None = None
    """Signs completion webhooks (HMAC-SHA256)."""
    on_end_broker_url: SecretStr | None = None
    """The broker of the host's own Celery app, for tasks that are sent when a job has ended."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("redis_url")
    @classmethod
    def _usable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            read_address(value.get_secret_value())
        return value

    @field_validator("on_end_broker_url")
    @classmethod
    def _is_broker(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not is_broker_url(value.get_secret_value()):
            raise ValueError("must be the URL of a broker, such as redis://host:6379/0")
        return value

    @field_validator("specialists_dirs", "tools_dirs", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        """A list as PATH writes it; a JSON list is understood, too."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return [part for part in value.split(os.pathsep) if part]

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
    """The settings of this process.

    Raises:
        UserError: naming the variable that is wrong, not its value.
    """
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(f"{_variable(where)}: {what}" for where, what in each_problem(error))
        raise UserError(
            f"a setting in the environment is wrong: {wrong}"
        ) from None  # pydantic's own would quote the value


def _variable(place: tuple[str, ...]) -> str:
    """The environment variable of a field that pydantic complains of."""
    name = place[0] if place else "setting"
    return name if name.isupper() else f"HANDOFF_{name.upper()}"


def redis_url_of(settings: Settings) -> str:
    """Here and not in `shared.process`: a client needs the URL, and none of what a worker loads."""
    return settings.redis_url.get_secret_value() if settings.redis_url else DEFAULT_REDIS_URL
