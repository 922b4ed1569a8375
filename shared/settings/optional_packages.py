"""Optional packages of `handoff-queue`, the error for a package that is not installed, and imports
of large packages without garbage collection.

The base install is for programs that only submit jobs and read results. `pyproject.toml`
declares the extras; a test compares them with `PACKAGES`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain

from handoff_queue.shared.types.errors import UserError

_SERVE = (
    "croniter",
    "fastapi",
    "jinja2",
    "prometheus_client",
    "python_multipart",
    "rich",
    "typer",
    "uvicorn",
)
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "agent-sdk": ("claude_agent_sdk", "mcp"),
    "cli": ("rich", "typer", "croniter"),
    "documents": ("pypdf", "selectolax"),
    "flower": ("flower",),
    "mcp": (*_SERVE, "mcp"),
    "prices": ("genai_prices",),
    "schedules": ("croniter",),
    "serve": _SERVE,
    "worker": (
        "aiohttp",
        "anthropic",
        "croniter",
        "docstring_parser",
        "genai_prices",
        "h11",
        "httpx2",
        "imagesize",
        "pypdf",
        "selectolax",
        "setproctitle",
    ),
}
"""Import names of the packages of each extra."""


def check_extra(extra: str, purpose: str, install: str = "all") -> None:
    """Check that the packages of an extra are installed.

    Args:
        purpose: subject of the error message, such as "handoff run".
        install: extra that the error message recommends.

    Raises:
        UserError: a package is missing. The message names the package and `install`.
    """
    for package in PACKAGES[extra]:
        if find_spec(package) is None:
            raise UserError(describe_missing_package(package, purpose, install))


def describe_missing_package(package: str, purpose: str, install: str) -> str:
    """Return an error message of one line about a missing package.

    Args:
        purpose: subject of the sentence: the feature that needs the package.
        install: extra to install.
    """
    return f"{purpose} needs the package {package}: install the extra {install} of handoff-queue"


def is_optional(package: str) -> bool:
    """Return whether an extra installs this package."""
    return package in chain.from_iterable(PACKAGES.values())


@contextmanager
def without_collection() -> Iterator[None]:
    """Run the block without garbage collection.

    An import makes many objects and no garbage, and each collection visits all objects. The imports
    of a Celery process take a tenth less processor time without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
