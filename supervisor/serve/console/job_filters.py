"""The filter of the table of jobs, in the form of the URL of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.serve.pagination import is_cursor
from handoff_queue.supervisor.serve.problem_documents import Problem

AGES: Final[Mapping[str, tuple[str, float]]] = {
    "1h": ("1 hour", 3_600),
    "1d": ("1 day", 86_400),
    "7d": ("7 days", 7 * 86_400),
    "30d": ("30 days", 30 * 86_400),
}
"""Words and seconds of each choice of an age."""
NAMES = (
    *("tenant", "mode", "priority", "specialist", "failed_specialist"),
    *("text", "age", "min_usd"),
)
MAX_TEXT_CHARS = 200
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """The texts of a filter in a URL. A text is '' for any."""

    statuses: frozenset[JobStatus]
    texts: Mapping[str, str]
    cursor: str

    def where(self, now: float) -> JobFilter:
        """Return the filter of the store.

        `now`: Unix time in seconds by Redis's clock.
        """
        submitted_after = None
        if age := self.texts["age"]:
            submitted_after = now - AGES[age][1]
        min_microusd = None
        if amount := self.texts["min_usd"]:
            min_microusd = round(float(amount) * 1e6)
        return JobFilter(
            statuses=self.statuses,
            tenant=self.texts["tenant"],
            submitted_after=submitted_after,
            mode=self.texts["mode"],
            priority=self.texts["priority"],
            text=self.texts["text"],
            min_microusd=min_microusd,
            specialist=self.texts["specialist"],
            failed_specialist=self.texts["failed_specialist"],
        )

    def query(self, cursor: str = "") -> str:
        """Return the query of a URL with this filter, with the cursor of another page."""
        pairs = [("status", str(status)) for status in sorted(self.statuses)]
        for name in NAMES:
            if self.texts[name]:
                pairs.append((name, self.texts[name]))
        if cursor:
            pairs.append(("cursor", cursor))
        return urlencode(pairs)


def filter_in(params: QueryParams, tenant: str | None) -> UrlFilter:
    """Return the filter of a URL.

    Args:
        tenant: the only tenant that the user sees; None for all tenants.

    Raises:
        Problem: a text is not valid.
    """
    texts: dict[str, str] = {}
    for name in NAMES:
        texts[name] = params.get(name, "").strip()[:MAX_TEXT_CHARS]
    if tenant is not None:
        texts["tenant"] = tenant
    statuses = set(params.getlist("status")) - {""}
    cursor = params.get("cursor", "")
    checks = {
        "status": statuses <= set(JobStatus),
        "mode": texts["mode"] in {"", *Mode},
        "priority": texts["priority"] in {"", *Priority},
        "age": texts["age"] in {"", *AGES},
        "min_usd": not texts["min_usd"] or _AMOUNT.fullmatch(texts["min_usd"]),
        "cursor": not cursor or is_cursor(cursor),
    }
    for name, is_valid in checks.items():
        if not is_valid:
            raise Problem(422, f"{name}: this value in the address of the page is not valid")
    return UrlFilter(frozenset(map(JobStatus, statuses)), texts, cursor)
