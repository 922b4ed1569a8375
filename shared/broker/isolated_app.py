"""A Celery app that shares nothing with the other Celery apps of its process, and that no
environment variable changes.

A host service imports our client, and often has its own Celery app. So this app is never the
current app and reads no `CELERY_*` variable. It names its transport on its own connections
instead of in kombu's alias table, and keeps its own connection pool. `make_app`
(`shared/broker/celery_app.py`) sets it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from celery import Celery
from celery.app.amqp import AMQP
from celery.app.backends import by_url
from celery.app.log import Logging
from celery.loaders.app import AppLoader
from celery.utils.log import mlevel
from celery.utils.nodenames import node_format
from kombu import Connection
from kombu.connection import ConnectionPool, PooledConnection
from kombu.pools import ProducerPool

from handoff_queue.shared.broker.chord_result_backend import SentinelStoreBackend, StoreBackend
from handoff_queue.shared.broker.transport import SentinelTransport, Transport


class IsolatedConnection(Connection):  # type: ignore[misc]
    """A broker connection over our transport. Its scheme stays `redis`, `rediss` or `sentinel`
    in logs and in Flower.
    """

    transports: Mapping[str, type] = {
        "redis": Transport,
        "rediss": Transport,
        "sentinel": SentinelTransport,
    }

    def get_transport_cls(self) -> type:
        """Return the transport of this URL scheme. kombu's alias table and its cache have no
        effect.
        """
        return self.transports[self.transport_cls]

    def Pool(self, limit: int | None = None, **_: Any) -> IsolatedPool:  # noqa: N802 - kombu's name
        """Return a pool of connections of this class. kombu's own pool would make connections
        of kombu's class.
        """
        return IsolatedPool(self, limit)

    def info(self) -> dict[str, Any]:
        """Return the data that `celery inspect stats` and Flower show, without the sentinels'
        password.
        """
        worker_info: dict[str, Any] = super().info()
        options = dict(worker_info["transport_options"])
        options.pop("sentinel_kwargs", None)
        return {**worker_info, "transport_options": options}


class _PooledConnection(PooledConnection, IsolatedConnection):  # type: ignore[misc]
    """A connection that goes back to its pool."""


class IsolatedPool(ConnectionPool):  # type: ignore[misc]
    """Connection pool whose connections have the transports of the connection that the pool
    was made from.
    """

    def new(self) -> Any:
        """Return a new connection that has not connected yet."""
        connection = _PooledConnection(self, **dict(self.connection._info(resolve=False)))
        connection.transports = self.connection.transports
        return connection


class IsolatedAMQP(AMQP):  # type: ignore[misc]
    """Queues and producers of the app. The producers use the app's own connection pool."""

    Connection = IsolatedConnection
    _producer_pool: Any

    @property
    def producer_pool(self) -> Any:
        """Return a pool that `kombu.pools` does not know, so that other apps cannot resize or
        reset it. An app that was closed has a new connection pool, and so new producers.
        """
        pool = self.app.pool
        if self._producer_pool is None or self._producer_pool.connections is not pool:
            self._producer_pool = ProducerPool(pool, limit=pool.limit, Producer=self.Producer)
        return self._producer_pool


class IsolatedLoader(AppLoader):  # type: ignore[misc]
    """Loader that ignores CELERY_CONFIG_MODULE and counts a chord's parts in the store."""

    override_backends: ClassVar[Mapping[str, str]] = {
        "redis": f"{StoreBackend.__module__}:{StoreBackend.__name__}",
        "rediss": f"{StoreBackend.__module__}:{StoreBackend.__name__}",
        "sentinel": f"{SentinelStoreBackend.__module__}:{SentinelStoreBackend.__name__}",
    }

    def read_configuration(self, *_: Any) -> None:
        """Return nothing: `make_app` sets every setting."""


class IsolatedLogging(Logging):  # type: ignore[misc]
    """Logging of this app's processes. Celery's own would ask the signal `setup_logging`,
    which all apps of a process share.
    """

    def setup_logging_subsystem(
        self,
        loglevel: int | str | None = None,
        logfile: str | None = None,
        *_: Any,
        hostname: str | None = None,
        **__: Any,
    ) -> bool:
        """Configure logging with the level and the file of the command line. Return True,
        which tells Celery that logging is configured.
        """
        configure: Callable[..., None] = self.app.configure_logging
        if logfile and hostname:
            name = node_format(logfile, hostname)
        else:
            name = logfile
        configure(at_most=mlevel(loglevel) if loglevel else None, file=name)
        return True


class IsolatedCelery(Celery):  # type: ignore[misc]
    """A Celery app for one Redis URL. The caller must pass `set_as_current=False`.

    Celery's own properties for the URLs read the environment first, so this class reads the
    settings instead.
    """

    amqp_cls = IsolatedAMQP
    control_cls = "handoff_queue.shared.broker.remote_control:BoundedControl"
    log_cls = IsolatedLogging
    _pool: Any
    builtin_fixups: ClassVar[set[str]] = set()
    """Empty: the Django fixup acts on every worker of a process that has DJANGO_SETTINGS_MODULE."""

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return self._connection(url or self.conf["broker_url"], **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return self._connection(url or self.conf["broker_url"], **options)

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        """Worker class of this app. A process that only sends messages does not load it."""
        return self.subclass_with_self("handoff_queue.shared.broker.isolated_worker:IsolatedWorker")

    @property
    def pool(self) -> Any:
        """Return this app's own pool of broker connections."""
        if self._pool is None:
            self._ensure_after_fork()
            self._pool = self.connection_for_write().Pool(limit=self.conf.broker_pool_limit)
        return self._pool

    def close(self) -> None:
        """Close the connections to the broker, and forget the app."""
        if self._pool is not None:
            self._pool.force_close_all()
        super().close()

    def _get_default_loader(self) -> type:
        return IsolatedLoader

    def _get_backend(self) -> Any:
        backend, url = by_url(self.conf["result_backend"], self.loader)
        return backend(app=self, url=url)
