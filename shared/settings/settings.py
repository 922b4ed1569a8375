"""Settings from the environment (`HANDOFF_...`). They are read once, in an `app.py` or the
CLI, and passed on.

Each setting has a type and, if it is a number, a lower and an upper bound. An error shows a
short plain value, but no part of a secret.

No error text of the types holds a value, which may be a secret. `load_settings` adds the
value of a setting that is not a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
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
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from handoff_queue.shared.settings.file_permissions import read_private
from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.http_values import (
    MAX_URL_CHARS,
    check_group_access,
    check_header_name,
    check_header_value,
    check_headers,
    check_hosts,
    check_networks,
    check_server_url,
    find_proxy_problems,
)
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.role_options import check_role_efforts, check_role_thinking
from handoff_queue.shared.text.times import convert_seconds, convert_whole_seconds
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.shared.types.limits import (
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENTS,
    Depth,
    Dollars,
    Tokens,
)
from handoff_queue.shared.types.message import iterate_problems, with_value

DAY_S = 86_400
YEAR_S = 365 * DAY_S
MAX_NAME_CHARS = 200
MAX_PATH_CHARS = 4_096
"""PATH_MAX of Linux."""
MAX_FOLDERS = 100
"""Most folders of one setting."""
MAX_PATTERNS = 100
"""Most names or patterns of one setting."""
MAX_OPEN_JOBS = 1_000_000
"""Largest limit of open jobs of a tenant."""

PREFIX = "HANDOFF_"
"""The beginning of the variables of this project."""
_BROKER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def _check_header_value(value: SecretStr) -> SecretStr:
    check_header_value(value.get_secret_value())
    return value


def _check_server_url(value: str) -> str:
    check_server_url(value)
    return value


def _check_redis_url(value: SecretStr) -> SecretStr:
    read_address(value.get_secret_value())
    return value


def _check_broker_url(value: SecretStr) -> SecretStr:
    if not is_broker_url(value.get_secret_value()):
        raise ValueError("must be the URL of a broker, such as redis://host:6379/0")
    return value


def _check_result_url(value: SecretStr) -> SecretStr:
    if not is_broker_url(value.get_secret_value()):
        raise ValueError("must be the URL of a result backend, such as redis://host:6379/0")
    return value


def _check_function_name(value: str) -> str:
    module, _, name = value.partition(":")
    if not all(map(str.isidentifier, (*module.split("."), name))):
        raise ValueError("must name a function as module:name, such as our_keys:keys_of")
    return value


def is_broker_url(text: str) -> bool:
    """Return whether a text has the form of a broker's URL. Kombu decides whether it knows the
    broker.
    """
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text and "://" in text
    is_web = parts.scheme in ("http", "https")
    return (
        is_plain
        and has_port
        and not is_web
        and len(text) <= MAX_URL_CHARS
        and bool(_BROKER_SCHEME.fullmatch(parts.scheme))
    )


def check_name(value: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return the text if it is a line of 1 to `limit` characters, without spaces around it.

    Raises:
        ValueError: the text has another form.
    """
    if not (value and value == value.strip() and value.isprintable() and len(value) <= limit):
        raise ValueError(f"must be 1 to {limit:,} characters on one line, without spaces around it")
    return value


def check_path(value: object) -> object:
    """Return a text if it can be a path, and any other value unchanged.

    Raises:
        ValueError: the text is empty, too long, or has a control character.
    """
    if isinstance(value, str):
        check_name(value, MAX_PATH_CHARS)
    return value


def _split_texts(value: Any) -> Any:
    """Return the texts of a list with commas. Another value is returned unchanged."""
    if not isinstance(value, str):
        return value
    texts = [text.strip() for text in value.split(",")]
    return [text for text in texts if text]


def _split_folders(value: Any) -> Any:
    """Return the folders in a text: a list with the separator of PATH, or a JSON list. Another
    value is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return list(filter(None, value.split(os.pathsep)))
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(
            f"must be folders separated by {os.pathsep}, or a JSON list of texts"
        ) from None


Duration = Annotated[float, BeforeValidator(convert_seconds)]
"""Seconds. A text may have units, as `shared.text.times` reads them: 500ms, 45s, 10m, 1h30m."""
Interval = Annotated[Duration, Field(ge=0.01, le=DAY_S, allow_inf_nan=False)]
"""Seconds between two actions, or until an action times out."""
WholeSeconds = Annotated[int, BeforeValidator(convert_whole_seconds)]
HeaderValue = Annotated[SecretStr, AfterValidator(_check_header_value)]
"""A secret that is sent in an HTTP header."""
ServerUrl = Annotated[str, AfterValidator(_check_server_url)]
RedisUrl = Annotated[SecretStr, AfterValidator(_check_redis_url)]
BrokerUrl = Annotated[SecretStr, AfterValidator(_check_broker_url)]
ResultUrl = Annotated[SecretStr, AfterValidator(_check_result_url)]
Name = Annotated[str, AfterValidator(check_name)]
PlainPath = Annotated[Path, BeforeValidator(check_path)]
Folders = Annotated[
    tuple[PlainPath, ...],
    NoDecode,
    BeforeValidator(_split_folders),
    Field(max_length=MAX_FOLDERS),
]
Patterns = Annotated[
    Annotated[tuple[Name, ...], Field(max_length=MAX_PATTERNS)] | None,
    NoDecode,
    BeforeValidator(_split_texts),
]
"""Patterns of names, as `fnmatch` reads them, or None."""
FunctionName = Annotated[str, AfterValidator(_check_function_name)]
"""A function, as `module:name`."""
HeaderName = Annotated[str, AfterValidator(check_header_name)]
Networks = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_texts),
    AfterValidator(check_networks),
    Field(max_length=MAX_PATTERNS),
]
"""IP addresses and networks."""
Hosts = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_texts),
    AfterValidator(check_hosts),
    Field(max_length=MAX_PATTERNS),
]
"""Hosts in small letters, as `is_allowed_host` reads them."""
GroupAccess = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_texts),
    AfterValidator(check_group_access),
    Field(max_length=MAX_PATTERNS),
]
"""Access levels of the HTTP API, each as `GROUP=LEVEL`."""
RoleEfforts = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_texts),
    AfterValidator(check_role_efforts),
]
"""Roles of the supervisor, each as `ROLE=EFFORT`."""
RoleThinking = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_texts),
    AfterValidator(check_role_thinking),
]
"""Roles of the supervisor, each as `ROLE=THINKING`."""


OFFLINE_MODEL = "offline"
"""Name of the built-in model that quotes documents. It is deterministic, and needs no key and
no network.
"""


DEFAULT_BASE_URL = "https://api.anthropic.com"
"""The default of Anthropic's SDK."""
DEFAULT_REDIS_URL = "redis://localhost:6379/0"
"""The address of a Redis on this machine. `handoff run` and `handoff up` start a private Redis
instead if the setting is missing.
"""

PATHS = ("HANDOFF_HOME", "HANDOFF_READY_FILE", "HANDOFF_FAILPOINTS")
"""Variables with a path that are not settings. One command or module reads each."""
_HEADERS_OF_PROVIDERS = ("ANTHROPIC_FOUNDRY_API_KEY", "AWS_BEARER_TOKEN_BEDROCK")
_URLS_OF_PROVIDERS = (
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
)
MORE_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
"""Headers that the SDK adds to each request: `Name: value`, one in each line."""


class _SetVariables(EnvSettingsSource):
    """The variables that are set. pydantic-settings would examine the types of all fields, which
    takes ten times as long as everything else.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = f"{self.env_prefix}{field_name}"
        if field.validation_alias is not None:
            name = str(field.validation_alias)
        if name.lower() in self.env_vars:
            return super().get_field_value(field, field_name)
        return None, field_name, True  # True: the caller does not examine the type

    def prepare_field_value(
        self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool
    ) -> Any:
        if value is None:
            return None
        return super().prepare_field_value(field_name, field, value, value_is_complex)


class Settings(BaseSettings):
    """The settings of a client or a process, read from the variables `HANDOFF_...`.

    The defaults suit one machine. A fleet sets `HANDOFF_REDIS_URL` and the model's key.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    redis_url: RedisUrl | None = None
    """The Redis for Celery's messages and the store, for example
    `redis://:password@host:6379/0`. `rediss://` uses TLS and checks certificates.
    `sentinel://` uses Sentinel. `?prefix=NAME` shares the database with other applications.
    Not set: `handoff run` and `handoff up` start a private Redis. Workers, supervisors and the
    Python client try `redis://localhost:6379/0`.
    """
    redis_url_file: PlainPath | None = None
    """A file that holds the URL of Redis, such as a file of `handoff keys init --redis`.
    `HANDOFF_REDIS_URL` comes first. A file that other users can read is refused.
    """

    model_provider: Literal["anthropic", "bedrock", "vertex", "foundry"] = "anthropic"
    """The service that runs the models. The clients of the clouds read their credentials from
    the environment, as their own SDKs do. `bedrock` and `vertex` need `pip install
    'anthropic[bedrock]'` or `'anthropic[vertex]'`.
    """
    supervisor_model: Name = "claude-opus-5-5"
    """The model that plans, reviews and synthesizes. Specialists of the tier `capable` use it."""
    specialist_model: Name = "claude-haiku-5-5"
    """The model of specialists that name none (tier `cheap`)."""
    review_model: Name | None = None
    """The model of the assessor, the judge and the grader of an evaluation. A job's own model does
    not replace it. Not set: `HANDOFF_SUPERVISOR_MODEL`, or the model of the job.
    """
    role_effort: RoleEfforts = ()
    """How much work the models of the supervisor's roles put into each reply: `low`, `medium`,
    `high`, `xhigh` or `max`, for example `planner=high,router=low`. The roles are `router`,
    `planner`, `replanner`, `judge`, `assessor` and `synthesizer`. Left out for a model that refuses
    it. A specialist, such as the grader of an evaluation, has `effort` in its file.
    """
    role_thinking: RoleThinking = ()
    """When the models of these roles think before they write: `adaptive`, `between_tools` or
    `disabled`, for example `judge=adaptive`. Left out for a model that refuses it.
    """
    job_model: Name | None = None
    """The model that all jobs of these workers name with `--model`. A worker asks at its start
    whether this model can do the work of its specialists. `handoff run --model` sets it for its
    workers.
    """
    anthropic_api_key: HeaderValue | None = Field(
        default=None, validation_alias="ANTHROPIC_API_KEY"
    )
    """The key of the model server."""
    anthropic_auth_token: HeaderValue | None = Field(
        default=None, validation_alias="ANTHROPIC_AUTH_TOKEN"
    )
    """A bearer token, which some gateways want instead of a key. If both are set, the key is
    used.
    """
    anthropic_base_url: ServerUrl | None = Field(
        default=None, validation_alias="ANTHROPIC_BASE_URL", repr=False
    )
    """A server that speaks the Messages API, such as a gateway or a local inference server. It
    needs no key. The URL has no `?` and no `#`. A user and a password in it are sent as Basic
    authorization, and a key is then sent as `X-Api-Key`.
    """  # not in `repr`: it may hold a password
    price_as: Name | None = None
    """The model whose price applies to names that the price table does not know, such as a
    gateway's alias. Not set: the cost of such a model is unknown, and `--max-usd` is refused.
    """
    offline: bool | None = None
    """`true`: always use the offline model. `false`: never use it. Not set: use it if there is
    no key, no token and no base URL.
    """

    priority: Priority = Priority.INTERACTIVE
    """The priority of a job that names none and does not follow another job. A request with an
    idempotency key must have the same priority each time. Set `batch` for scheduled jobs.
    """
    mode: Literal[Mode.AUTO, Mode.SINGLE, Mode.TEAM, Mode.ADAPTIVE] = Mode.AUTO
    """The mode of a job that names none. Set `team` if every job is worth a planner, and
    `single` if no job is.
    """
    max_depth: Depth = 2
    """Levels of child jobs in a job that sets no limit. 0: a plan can use none."""

    gates: PlainPath | None = None
    """A file of gates, for jobs that have no gates and whose workflow has none. A process
    reads it once.
    """

    specialists_dirs: Folders = ()
    """Folders of Markdown files that add specialists, or replace built-in ones of the same name."""
    check_specialists: bool = False
    """A supervisor offers only specialists that workers announce as in its own files: the built-in
    ones and those in HANDOFF_SPECIALISTS_DIRS. Use it if you do not trust all workers.
    """
    tools_dirs: Folders = ()
    """Folders of Python files with your own tools."""
    policy_file: PlainPath | None = None
    """A YAML file with the policy of tools: which origins of data may reach which tools. A worker
    reads it once. Not set: the default policy.
    """
    tenant_credential_function: FunctionName | None = None
    """A Python function that returns a credential of a tenant for your own tools, as
    `module:name`. The worker calls it with the tenant of the job and the name of the credential.
    """
    tool_memory_bytes: int = Field(default=2_000_000_000, ge=10_000_000, le=10**15)
    """Memory that each process of one of your own tools may map, in addition to the memory after
    the import of all tools. Raise it for programs that map much more than they use, such as Node
    and Chromium.
    """
    tool_cpu_s: WholeSeconds = Field(default=600, ge=1, le=DAY_S)
    """Processor time of each process of one of your own tools."""
    tool_file_bytes: int = Field(default=1_000_000_000, ge=1, le=10**15)
    """The largest file that one of your own tools may write."""
    tool_open_files: int = Field(default=1_024, ge=32, le=1_000_000)
    """Files and connections that each process of one of your own tools may have open."""
    tool_processes: int = Field(default=256, ge=1, le=1_000_000)
    """Processes and threads that one of your own tools may start, if the worker does not run as
    root. The system counts the processes of all calls together.
    """
    cache_dir: PlainPath = Path("~/.cache/handoff")
    """The folder of full-text indexes and of interrupted runs. The indexes may be deleted at
    any time. Containers of one role on one host share it as a volume. A user without a home
    folder must set it.
    """

    lease_s: Duration = Field(default=15.0, gt=0.2, le=DAY_S, allow_inf_nan=False)
    """How long a claim lives without renewal. A dead worker's handoffs run elsewhere after
    this time. A short lease recovers sooner. A lease that is too short makes a busy machine
    lose claims. A process that cannot renew for three leases ends itself.
    """
    sweep_interval_s: Interval = 1.0
    """How often each supervisor looks for ended leases, lost messages, deadlines and webhooks.
    The longest interval is an eighth of a lease.
    """
    retention_s: WholeSeconds = Field(default=7 * DAY_S, gt=60, le=10 * YEAR_S)
    """How long a job and its documents are kept after the last change. A job that has not
    ended is kept at least until its deadline. Use one value in all processes.
    """
    keep_turns: bool = False
    """`true`: the turns of a handoff stay as long as its job, and `handoff export` and
    `handoff trace` contain them. They take several times the memory of the results. `false`:
    they are removed when the handoff ends. Turns of a handoff that was cancelled or ran out of
    time are always removed. `handoff run` and `handoff up` with a Redis of their own set `true`.
    """
    drain_s: Duration = Field(default=30.0, ge=0, le=DAY_S, allow_inf_nan=False)
    """How long running turns may continue after SIGTERM. Then their handoffs go back to the
    queue. Wait longer than this before you kill a process. `handoff run` gives its own workers
    2 seconds.
    """
    model_silence_s: Interval = 120.0
    """The longest silence on the connection of a model call, before the call counts as broken.
    Raise it for a slow local server.
    """
    model_progress_s: Interval = 300.0
    """The longest time in which a model call receives only keep-alive events, before it counts
    as broken.
    """
    rate_window_s: Interval = 60.0
    """The period of the limits in the server's `anthropic-ratelimit-*` headers. Anthropic's
    limits are per minute. Use one value in all processes.
    """
    memory_mark: float = Field(default=0.8, gt=0, le=1, allow_inf_nan=False)
    """The part of Redis's `maxmemory` above which no new job is accepted. The rest is for
    running jobs. It has no effect if Redis has no `maxmemory`.
    """
    rate_wait_s: Interval = 20.0
    """A handoff that must wait longer than this for the provider's rate limits frees its slot.
    It continues when the limits allow it.
    """
    batch_poll_s: Interval = 15.0
    """How soon a worker first asks for the result of a batch. Each further wait is half of the age
    of the batch, and at most 20 times this time.
    """
    max_request_chars: int = Field(default=100_000, ge=1, le=10_000_000)
    """The longest request. Put long texts into documents: a specialist can search them."""
    max_document_bytes: int = Field(default=MAX_DOCUMENT_BYTES, ge=1, le=100_000_000)
    """Bytes of the largest document. Redis takes values of 128 MB (`handoff up`, Compose)."""
    max_documents: int = Field(default=MAX_DOCUMENTS, ge=1, le=1_000_000)
    """The most files of one job."""
    serve_max_body_bytes: int = Field(default=50_000_000, ge=1_000, le=2_000_000_000)
    """The longest body of an HTTP request to `handoff serve`, with all documents in it."""
    serve_requests_per_minute: int = Field(default=600, ge=1, le=1_000_000)
    """The most HTTP requests of one token in a minute. All replicas of `handoff serve` share
    the count.
    """
    serve_streams: int = Field(default=1_000, ge=1, le=1_000_000)
    """The most streams that one token holds open at one process of `handoff serve`. Streams are
    events, answers, pages of the console, requests that wait for a job, and notifications of MCP
    clients.
    """
    serve_proxies: Networks = ()
    """The addresses of reverse proxies. `handoff serve` believes `X-Forwarded-For` and the
    headers below only if one of these addresses sent the request. Not set: no proxy.
    """
    serve_user_header: HeaderName | None = None
    """The header in which a proxy names the user that it has authenticated, for example
    `X-Forwarded-Email`. Not set: the server takes tokens only.
    """
    serve_groups_header: HeaderName | None = None
    """The header in which the proxy lists the groups of the user, with commas or `|`."""
    serve_access: GroupAccess = ()
    """The access level of each group. The group `*` is every user. The highest level counts. A
    user without a level is refused.
    """
    serve_tenant_header: HeaderName | None = None
    """The header in which the proxy names the tenant of the user. A user without it is refused,
    except an admin. Not set: users see all tenants.
    """
    tenant_keys: PlainPath | None = None
    """A folder with a file of keys for each tenant, `TENANT.key`. The texts of these tenants are
    encrypted in Redis. Set it for supervisors, workers, clients and servers.
    """
    tenant_key_function: FunctionName | None = None
    """A Python function that returns the keys of a tenant, as `module:name`, if there is no folder.
    """
    tenant_key_cache_s: Interval = 300.0
    """How long the keys that the function returned stay in memory."""
    day_usd: Dollars | None = None
    """The most that all jobs together may cost in a day."""
    day_tokens: Tokens | None = None
    """The most input and output tokens of all jobs together in a day."""
    tenant_day_usd: Dollars | None = None
    """The most that the jobs of each tenant may cost in a day."""
    tenant_day_tokens: Tokens | None = None
    """The most input and output tokens of each tenant's jobs in a day."""
    tenant_open_jobs: int | None = Field(default=None, ge=1, le=MAX_OPEN_JOBS)
    """The most jobs of each tenant that have not ended. A job or a retry above it is refused. Child
    jobs do not count.
    """
    webhook_secret: HeaderValue | None = None
    """The secret from which the secrets of all tenants follow, at least 16 characters. The secret
    of a job's tenant signs its webhooks (HMAC-SHA256), and `handoff keys webhook TENANT` prints
    it. Not set: webhooks are not signed.
    """
    webhook_private_hosts: Hosts = ()
    """The hosts of webhooks that may have private addresses and any port, such as
    `hooks.internal, *.svc.cluster.local, 127.0.0.1`. All other webhooks must go to the public
    internet, and to port 80, 443 or above 1023.
    """
    on_end_broker_url: BrokerUrl | None = None
    """The broker of your own Celery app (`redis://`, `amqp://` or any broker of kombu). The
    supervisor sends the tasks of `Request(on_end=...)` there. The URL is a secret.
    """
    on_end_tasks: Patterns = None
    """Names of the tasks that may be sent there, for example `shop.*, billing.notify`. `*`
    stands for any characters and `?` for one. Not set: a supervisor sends no task. A client
    with this setting refuses other tasks.
    """
    host_broker_url: BrokerUrl | None = None
    """The broker of your own Celery app, for specialists that are tasks of that app. The URL
    is a secret.
    """
    host_result_url: ResultUrl | None = None
    """The result backend of that app. The worker reads the end of such a task there. The URL
    is a secret.
    """
    keys: PlainPath | None = None
    """The folder that `handoff keys init` made, or its file of public keys. With it, this process
    signs its messages and checks the signatures of others. Set it in all processes. Not set:
    nothing is signed and nothing is checked.
    """
    signing_key: PlainPath | None = None
    """The file of this process's private key, such as `keys/supervisor.key`. A process without a
    key only reads.
    """

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The lowest level that is logged. Celery's `--loglevel` can lower it further."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the names are given)
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of values: arguments, then environment variables."""
        return init_settings, _SetVariables(settings_cls)

    @field_validator("specialists_dirs", "tools_dirs")
    @classmethod
    def _expand_folders(cls, folders: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        expanded_folders: list[Path] = []
        try:
            for folder in folders:
                expanded_folders.append(expand_folder(folder, str(info.field_name)))
        except UserError:
            raise ValueError(
                "needs a home folder that does not exist: use an absolute path, or set HOME"
            ) from None
        return tuple(expanded_folders)

    @property
    def cache_folder(self) -> Path:
        """Return `cache_dir` with its `~` replaced by the home folder.

        Raises:
            UserError: this user has no home folder. The message names HANDOFF_CACHE_DIR.
        """
        return expand_folder(self.cache_dir, "HANDOFF_CACHE_DIR")

    @property
    def is_offline(self) -> bool:
        """Return whether the offline model is used."""
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
        UserError: variables are wrong. The message names them, with the values that cannot be
            secrets.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = []
        for where, problem in iterate_problems(error):
            wrong.append(f"{_get_variable(where)}: {_with_value(where, problem)}")
    else:
        wrong = [*_find_other_problems(settings)]
    if wrong:  # raised outside the `except` block: pydantic's error holds the values
        raise UserError(f"a setting in the environment is wrong: {'; '.join(wrong)}")
    if settings.redis_url is None and settings.redis_url_file is not None:
        return settings.model_copy(update={"redis_url": _read_url(settings.redis_url_file)})
    return settings


def _read_url(file: Path) -> SecretStr:
    """Return the URL of Redis in a file.

    Raises:
        UserError: the file cannot be read, is open to other users, or its text is not a Redis URL.
    """
    try:
        url = read_private(file.expanduser(), "password in").decode().strip()
        read_address(url)
    except UserError as error:
        raise UserError(f"HANDOFF_REDIS_URL_FILE: {error}") from None
    except OSError as error:
        raise UserError(
            f"HANDOFF_REDIS_URL_FILE: {file} cannot be read ({error.strerror}): name a file that"
            " this user can read"
        ) from error
    except UnicodeDecodeError:
        raise UserError(
            f"HANDOFF_REDIS_URL_FILE: {file} is not UTF-8 text: write the Redis URL into it"
        ) from None
    except ValueError as error:
        raise UserError(f"HANDOFF_REDIS_URL_FILE: the URL in {file} {error}") from None
    return SecretStr(url)


def _find_other_problems(settings: Settings) -> Iterator[str]:
    """Yield the faults of variables that are not fields of `Settings`."""
    for name in PATHS:
        yield from _find_problem(name, check_path)
    if settings.is_offline:
        return
    checks = {
        **dict.fromkeys(_HEADERS_OF_PROVIDERS, check_header_value),
        **dict.fromkeys(_URLS_OF_PROVIDERS, check_server_url),
        MORE_HEADERS: check_headers,
    }
    for name, check in checks.items():
        yield from _find_problem(name, check)
    yield from find_proxy_problems(settings.anthropic_base_url or DEFAULT_BASE_URL, os.environ)


def _find_problem(name: str, check: Callable[[str], object]) -> Iterator[str]:
    """Yield the fault of a variable, if it is set and its check raises a ValueError."""
    if value := os.environ.get(name):
        try:
            check(value)
        except ValueError as error:
            yield f"{name}: {error}"


def _with_value(place: tuple[str, ...], problem: str) -> str:
    """Return the problem of a setting with its value, unless the setting may hold a secret."""
    for name, field in Settings.model_fields.items():
        is_secret = not field.repr or "SecretStr" in str(field.annotation)
        if place and place[0] in (name, field.validation_alias) and not is_secret:
            return with_value(problem, os.environ.get(_get_variable(place)))
    return problem


def _get_variable(place: tuple[str, ...]) -> str:
    """Return the environment variable of a field in which pydantic found a problem."""
    name = "setting"
    if place:
        name = place[0]
    if name.isupper():
        return name
    return PREFIX + name.upper()


def get_redis_url(settings: Settings) -> str:
    """Return the URL of Redis, or the default. It is defined here because a client needs the
    URL, but not the modules that a worker loads.
    """
    if settings.redis_url:
        return settings.redis_url.get_secret_value()
    return DEFAULT_REDIS_URL
