"""Environment variables of other programs, which must not change how our processes run.

Three kinds of variables reach a Celery process:

- Variables that Celery, kombu or billiard read by themselves, often during their import
  (`READ_BY_CELERY`). Our own commands remove them before the import. With `celery -A
  handoff_queue.workers.app worker` Celery is imported already, so the app refuses to start.
- Variables that replace options of Celery's command line: `CELERY_WORKER_POOL`, `BROKER_URL`. Our
  apps ignore them.
- Variables that Celery's app reads for its URLs, loader and configuration.
  `shared/broker/isolated_app.py` ignores them.

Kubernetes adds variables for each service of a namespace (service links):
`FLOWER_PORT=tcp://10.0.0.1:5555` for a service `flower`.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from handoff_queue.shared.types.errors import UserError

READ_BY_CELERY = frozenset(
    {
        "AUTOSCALE_KEEPALIVE",
        "CELERY_BENCH",
        "CELERY_BENCH_EVERY",
        "CELERY_CUSTOM_WORKER_POOL",
        "CELERY_LOG_FILE",
        "CELERY_LOG_LEVEL",
        "CELERY_LOG_REDIRECT",
        "CELERY_LOG_REDIRECT_LEVEL",
        "CELERY_RDBSIG",
        "CELERY_RDB_HOST",
        "CELERY_RDB_PORT",
        "CELERY_SKIP_CHECKS",
        "CELERY_TRACE_APP",
        "CELERY_WORKER_REVOKES_MAX",
        "CELERY_WORKER_REVOKE_EXPIRES",
        "CELERY_WORKER_SUCCESSFUL_EXPIRES",
        "CELERY_WORKER_SUCCESSFUL_MAX",
        "C_BENCH",
        "C_BENCH_EVERY",
        "C_FAKEFORK",
        "C_IMPDEBUG",
        "C_REMDEBUG",
        "C_STRICT_APP",
        "C_WARN_APP",
        "C_WNOCONF",
        "DISABLE_TRACEBACKS",
        "EVENTLET_NOBLOCK",
        "FORKED_BY_MULTIPROCESSING",
        "KOMBU_DEBUG_POOL",
        "KOMBU_DISABLE_LIMIT_PROTECTION",
        "KOMBU_LOG_CHANNEL",
        "KOMBU_LOG_CONNECTION",
        "KOMBU_LOG_DEBUG",
        "MP_LOG",
        "MP_MAIN_FILE",
        "NOSETPS",
        "PICKLE_PROTOCOL",
        "REMAP_SIGTERM",
        "TIMER_DEBUG",
        "USE_FAST_LOCALS",
        "_MP_FORK_LOGFILE_",
        "_MP_FORK_LOGFORMAT_",
        "_MP_FORK_LOGLEVEL_",
    }
)
"""Names in the source of Celery, kombu and billiard.
`tests/shared/settings/test_foreign_environment.py` compares them with the installed source.
"""
SET_BY_CELERY = frozenset(name for name in READ_BY_CELERY if name.startswith("CELERY_LOG_"))
"""Variables that a worker sets for its child processes. A worker that a tool of another worker
starts has them, so they are not a reason to refuse.
"""
NAME_A_BROKER = (
    "CELERY_BROKER_URL",
    "CELERY_BROKER_READ_URL",
    "CELERY_BROKER_WRITE_URL",
    "CELERY_RESULT_BACKEND",
    "BROKER_URL",
    "RESULT_BACKEND",
)
"""Variables in which other Celery applications expect the URL of their broker or result backend."""
_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://")


def forget_celery_variables(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove the variables that Celery would read. Our processes call this before they import
    Celery.
    """
    for name in READ_BY_CELERY & set(environment):
        del environment[name]


def forget_service_links(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove the variables that Kubernetes sets for a service called flower. Otherwise Flower
    would read FLOWER_PORT as its own option.
    """
    for name in list(environment):
        if name.startswith("FLOWER_") and _SERVICE_LINK.match(environment[name]):
            del environment[name]


def check_celery_command(module: str) -> None:
    """Make Celery's command line ignore variables, or refuse variables that it cannot ignore.

    The function has an effect only if Celery's command line was started for this app module. A
    host service that imports the module keeps its environment.

    Raises:
        UserError: a variable or an option would change how our app runs. The message names it.
    """
    context = _find_celery_context(module)
    if context is None:
        return
    forget_service_links()
    context.auto_envvar_prefix = None  # otherwise click would read CELERY_WORKER_POOL as --pool
    for name in sorted((READ_BY_CELERY - SET_BY_CELERY) & set(os.environ)):
        raise UserError(
            f"the environment variable {name} changes how Celery runs this process: unset it, or"
            " use `handoff`"
        )
    for name, option in (("broker", "-b"), ("result_backend", "--result-backend")):
        if context.get_parameter_source(name).name == "COMMANDLINE":
            raise UserError(
                f"Celery's option {option} is not used here: set HANDOFF_REDIS_URL instead"
            )


def check_tls_variables() -> None:
    """Check the files that SSL_CERT_FILE and SSLKEYLOGFILE name. With a wrong file, each
    connection would fail.

    Raises:
        UserError: a file cannot be used. The message names the variable.
    """
    if certificates := os.environ.get("SSL_CERT_FILE"):
        try:
            _check_certificates(certificates, Path(certificates).stat().st_mtime_ns)
        except OSError as error:
            raise UserError(
                "the environment variable SSL_CERT_FILE names no readable file of certificates:"
                " correct or unset it"
            ) from error
    if keys := os.environ.get("SSLKEYLOGFILE"):
        try:
            Path(keys).open("a").close()
        except OSError as error:
            raise UserError(
                "the environment variable SSLKEYLOGFILE names a file that cannot be written:"
                " correct or unset it"
            ) from error


@cache
def _check_certificates(file: str, _changed_ns: int) -> None:
    """Check a file of certificates once after each change. It takes about 50 ms to load a file
    with the certificates of the usual authorities.

    Raises:
        OSError: the file is not readable, or holds no certificates.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)


def _find_celery_context(module: str) -> Any:
    """Return click's context if this process runs `celery -A MODULE ...`, else None."""
    if "celery.bin.celery" not in sys.modules:
        return None
    import click

    context = click.get_current_context(silent=True)
    if context is None or context.command is not sys.modules["celery.bin.celery"].celery:
        return None
    app_path = str(context.params.get("app") or "")
    if app_path.partition(":")[0] == module:
        return context
    return None
