"""Loads the plans, results and texts that a decision needs."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.unit_of_work import UnitOfWork
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_PLAN_STEPS = 200_000
"""Most steps in all parsed plans that a process keeps: about 100 MB. The newest plan may
exceed it.
"""


class PlanCache:
    """Cache of parsed plans, because a plan of thousands of steps is issued in many batches. It
    drops the least recently used plan first.
    """

    def __init__(self) -> None:
        self._plans_by_digest: OrderedDict[str, Plan] = OrderedDict()
        self._steps = 0
        self._lock = threading.Lock()

    def get(self, digest: str, text: Callable[[], str]) -> Plan:
        """Return the plan of a digest.

        Args:
            text: returns the text of the plan. It is only called if the plan is not cached.
        """
        with self._lock:
            if digest in self._plans_by_digest:
                self._plans_by_digest.move_to_end(digest)
                return self._plans_by_digest[digest]
        plan = Plan.from_json(text())
        with self._lock:
            if digest not in self._plans_by_digest:
                self._steps += len(plan.steps)
            self._plans_by_digest[digest] = plan
            while self._steps > MAX_PLAN_STEPS and len(self._plans_by_digest) > 1:
                self._steps -= len(self._plans_by_digest.popitem(last=False)[1].steps)
        return plan


class PayloadLoader:
    """Loads payloads from the store, or from the decision in preparation."""

    def __init__(self, payload_cache: PayloadCache) -> None:
        self._payload_cache = payload_cache
        self._plans = PlanCache()

    def plan(self, state: JobState, writes: UnitOfWork) -> Plan:
        """Return the plan of a job. A plan that is not stored yet comes from `writes`."""
        assert state.plan is not None
        ref = state.plan.plan
        return self._plans.get(
            ref.digest, lambda: writes.texts.get(ref.digest) or self.load_text(state, ref)
        )

    def load_answer_schema(self, state: JobState) -> Mapping[str, Any]:
        """Return the JSON Schema of the job's answer; by default the answer is a string."""
        if state.submitted.answer_schema is None:
            return {"type": "string"}
        schema: dict[str, JsonValue] = json.loads(
            self.load_text(state, state.submitted.answer_schema)
        )
        return schema

    def load_texts(
        self, state: JobState, refs: Iterable[BlobRef], writes: UnitOfWork
    ) -> ResultTexts:
        """Load results in at most one round trip. Results that are not stored yet come from
        `writes`.
        """
        pending: dict[str, str] = {}
        missing: list[str] = []
        for reference in refs:
            if reference.digest in writes.texts:
                pending[reference.digest] = writes.texts[reference.digest]
            else:
                missing.append(reference.digest)
        stored_texts = self._payload_cache.get_payloads(state.job_id, [], results=missing)
        return ResultTexts(stored_texts | pending, writes.unreadable)

    def load_text(self, state: JobState, ref: BlobRef) -> str:
        return self._payload_cache.get_payloads(state.job_id, [ref.digest])[ref.digest]
