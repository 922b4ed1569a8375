"""Loads the payloads of a job that decisions need."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.runtime.payload_cache import Library
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.pending_writes import Prepared
from handoff_queue.supervisor.lifecycle.result_texts import Words
from handoff_queue.supervisor.lifecycle.state import JobState

MOST_PLAN_STEPS = 200_000
"""Steps of all parsed plans that a process keeps, about 100 MB."""


class Plans:
    """Parsed once: a plan of thousands of steps is handed out in many slices. The least recently used go first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Plan] = OrderedDict()
        self._steps = 0
        self._lock = threading.Lock()

    def get(self, digest: str, text: Callable[[], str]) -> Plan:
        """`text`: of the plan, where it is not known yet."""
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        plan = Plan.from_json(text())
        with self._lock:
            self._steps += 0 if digest in self._known else len(plan.steps)
            self._known[digest] = plan
            while self._steps > MOST_PLAN_STEPS and len(self._known) > 1:
                self._steps -= len(self._known.popitem(last=False)[1].steps)
        return plan


class Loading:
    """Reads payloads from the ledger, or from the decision in preparation."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._plans = Plans()

    def plan(self, state: JobState, into: Prepared) -> Plan:
        """Return the plan of a job. The plan of the decision in preparation comes from `into`."""
        assert state.plan is not None
        ref = state.plan.plan
        return self._plans.get(
            ref.digest, lambda: into.texts.get(ref.digest) or self.text(state, ref)
        )

    def answer_schema(self, state: JobState) -> Mapping[str, Any]:
        if state.submitted.answer_schema is None:
            return {"type": "string"}
        schema: dict[str, JsonValue] = json.loads(self.text(state, state.submitted.answer_schema))
        return schema

    def words(self, state: JobState, refs: Iterable[BlobRef], into: Prepared) -> Words:
        """Load results in at most one round trip. Results of the decision in preparation come from `into`."""
        digests = [ref.digest for ref in refs]
        stored = self._library.payloads(
            state.job_id, [], results=[digest for digest in digests if digest not in into.texts]
        )
        return Words(
            stored | {digest: into.texts[digest] for digest in digests if digest in into.texts},
            into.unreadable,
        )

    def text(self, state: JobState, ref: BlobRef) -> str:
        return self._library.payloads(state.job_id, [ref.digest])[ref.digest]
