"""The trace id follows from the job's id."""

from __future__ import annotations

import pytest

from handoff_queue.shared.observability.trace_ids import (
    StoredTrace,
    derive_handoff_span,
    derive_job_span,
    find_position,
    format_traceparent,
)
from handoff_queue.shared.types.ids import HandoffId, JobId

JOB, CHILD, GRANDCHILD = JobId("j-000000000001"), JobId("j-000000000002"), JobId("j-000000000003")
SUBMIT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_job_that_was_submitted_within_a_span_is_below_that() -> None:
    place = find_position(JOB, lambda _: StoredTrace(SUBMIT))

    assert (
        format_traceparent(place.trace_id, place.parent_id or 0, is_sampled=bool(place.is_sampled))
        == SUBMIT
    )
    assert place.span_id == derive_job_span(JOB)


def test_the_submitter_decides_whether_a_job_is_traced() -> None:
    assert find_position(JOB, lambda _: StoredTrace(SUBMIT[:-2] + "00")).is_sampled is False


def test_a_child_of_a_child_is_in_the_trace_of_the_first() -> None:
    above = {
        JOB: StoredTrace(SUBMIT),
        CHILD: StoredTrace(parent=JOB),
        GRANDCHILD: StoredTrace(parent=CHILD),
    }
    place = find_position(GRANDCHILD, above.__getitem__)

    assert place.trace_id == find_position(JOB, above.__getitem__).trace_id
    assert (place.parent_id, place.is_sampled) == (derive_job_span(CHILD), True)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        "",
        "nonsense",
        SUBMIT.upper(),
        SUBMIT + "-",
        "00-" + "0" * 32 + SUBMIT[35:],
        SUBMIT[:36] + "0" * 16 + "-01",
    ],
)
def test_without_a_usable_trace_header_the_job_is_the_root_of_a_trace_from_its_id(
    kept: str | None,
) -> None:
    place = find_position(JOB, lambda _: StoredTrace(kept))

    assert place == find_position(JOB, lambda _: StoredTrace())
    assert (place.parent_id, place.is_sampled) == (None, None)
    assert place.trace_id != find_position(CHILD, lambda _: StoredTrace()).trace_id


def test_trace_ids_are_the_same_in_all_versions() -> None:
    assert (
        f"{find_position(JOB, lambda _: StoredTrace()).trace_id:032x}"
        == "a9a315d1616b49efcea16289a6ca232d"
    )
    assert f"{derive_job_span(JOB):016x}" == "8f44148682d90e34"
    assert f"{derive_handoff_span(JOB, HandoffId('a.1')):016x}" == "cb7b12ad58fe6401"
