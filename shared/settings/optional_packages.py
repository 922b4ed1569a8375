"""Optional packages of `handoff-queue`, and one clear line where they are not installed.

The base install is for programs that only submit jobs and read results. `pyproject.toml`
declares the extras; a test compares them with `PACKAGES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from handoff_queue.shared.types.errors import UserError

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "cli": ("rich", "typer"),
    "documents": ("pypdf", "selectolax"),
    "flower": ("flower",),
    "prices": ("genai_prices",),
    "worker": (
        "aiohttp",
        "anthropic",
        "genai_prices",
        "httpx2",
        "imagesize",
        "pypdf",
        "selectolax",
    ),
}
"""Extra -> the import names of its packages."""


def check_extra(extra: str, purpose: str, install: str = "all") -> None:
    """Refuse to go on without the packages of an extra.

    `purpose`: the subject of the sentence, such as "handoff run". `install`: the extra that
    the line recommends.

    Raises:
        UserError: a package is missing. The line names it, and the extra that has it.
    """
    for package in PACKAGES[extra]:
        if find_spec(package) is None:
            raise UserError(missing(package, purpose, install))


def missing(package: str, purpose: str, install: str) -> str:
    """Return one line: the feature that needs the package, and how to install it."""
    return f"{purpose} needs the package {package}: install handoff-queue[{install}]"


def is_optional(package: str) -> bool:
    """Return whether an extra installs this package."""
    return any(package in packages for packages in PACKAGES.values())
