"""The facts that a worker or a supervisor announces about itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import urlsplit, urlunsplit

from celery import Celery

from handoff_queue.shared.broker.celery_app import DEFAULT_THREADS
from handoff_queue.shared.observability.redaction import Redactor, secrets_of
from handoff_queue.shared.providers.anthropic.base_url import split_credentials
from handoff_queue.shared.runtime.process import Process
from handoff_queue.shared.settings.settings import DEFAULT_BASE_URL, OFFLINE_MODEL, Settings
from handoff_queue.shared.types.presence import MOST_ROLES, ModelCalls, Node
from handoff_queue.shared.types.specialist import SpecialistSpec


@dataclass(frozen=True, slots=True)
class Announcer:
    """Source of the facts that one process announces."""

    process: Process
    app: Celery
    node: str
    """Name of the process in Celery."""
    roles: tuple[SpecialistSpec, ...]
    """Specialists or roles that it serves."""
    _redactor: Redactor

    @classmethod
    def of(
        cls, process: Process, app: Celery, node: str, roles: Iterable[SpecialistSpec]
    ) -> Announcer:
        """Return the announcer of a process. Its facts hide every secret of the settings and
        the environment.
        """
        return cls(process, app, node, tuple(roles), Redactor(secrets_of(process.settings)))

    def now(self) -> Node:
        """Return the facts, with the outcome of the newest model calls."""
        settings, models = self.process.settings, self.process.attempts.models
        model_names: dict[str, str] = {}
        for spec in self.roles[:MOST_ROLES]:
            model_names[spec.name] = self._redactor.text(models.name_of(None, spec))
        return Node(
            node=self.node,
            broker=self.app.connection_for_read().as_uri(),
            version=version("handoff-queue"),
            slots=int(self.app.conf.worker_concurrency or DEFAULT_THREADS),
            model=OFFLINE_MODEL if settings.is_offline else settings.model_provider,
            server=self._redactor.text(server_of(settings)),
            models=model_names,
            calls=tuple(map(self._redacted, models.calls.newest())),
        )

    def _redacted(self, calls: ModelCalls) -> ModelCalls:
        """Return the outcome of model calls without secrets."""
        model, error = self._redactor.text(calls.model), self._redactor.text(calls.error)
        return calls.model_copy(update={"model": model, "error": error})


def server_of(settings: Settings) -> str:
    """Return the address of the model's server without user, password and query. Return '' for
    the offline model, for other providers than Anthropic, and for an address that cannot be
    parsed.
    """
    if settings.is_offline or settings.model_provider != "anthropic":
        return ""
    address, _ = split_credentials((settings.anthropic_base_url or DEFAULT_BASE_URL).rstrip("/"))
    try:
        return urlunsplit(urlsplit(address)._replace(query="", fragment=""))
    except ValueError:
        return ""
