"""`show` and `trace` say how the requests of a handoff were kept short."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ContextCleared,
    ContextCompacted,
    ModelReplied,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.cli.show import show_handoffs
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.context_use import describe_context_use
from tests.doubles.handoffs import a_handoff
from tests.doubles.jobs import a_job, issued_event, version_of


def cleared(*ids: str, by_provider: bool | None = None) -> Checkpoint:
    return ContextCleared(tool_use_ids=ids, tokens=1_500 * len(ids), by_provider=by_provider)


def compacted(*, by_provider: bool | None = None) -> Checkpoint:
    return ContextCompacted(
        summary="So far.", tool_use_ids=("c",), tokens=30_000, by_provider=by_provider
    )


def replied(tokens: int) -> Checkpoint:
    usage = Usage(input_tokens=tokens, cache_write_1h_tokens=tokens)
    return ModelReplied(content=(), stop_reason="end_turn", usage=usage, model="m")


@pytest.mark.parametrize(
    ("turns", "line"),
    [
        ((), ""),
        ((replied(0),), ""),
        ((cleared("a"),), "1 result cleared, about 1,500 tokens"),
        ((cleared("a"), cleared("b", "c")), "3 results cleared, about 4,500 tokens"),
        ((compacted(),), "1 summary of earlier turns, about 30,000 tokens"),
        (
            (cleared("a"), compacted(), compacted(), replied(9_000)),
            "1 result cleared, about 1,500 tokens; 2 summaries of earlier turns, about 60,000"
            " tokens; 9,000 tokens cached for one hour",
        ),
        (
            (cleared("a"), cleared("b", "c", by_provider=True), compacted(by_provider=True)),
            "3 results cleared, 2 by the provider, about 4,500 tokens; 1 summary of earlier turns"
            " by the provider, about 30,000 tokens",
        ),
    ],
)
def test_the_line_names_clearings_summaries_and_tokens_that_are_cached_for_an_hour(
    turns: tuple[Checkpoint, ...], line: str
) -> None:
    assert describe_context_use(turns) == line


def test_show_prints_the_context_of_a_handoff(
    jobs: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id, store = a_job(jobs.store), jobs.store
    handoff = a_handoff(job_id=job_id)
    text, name = handoff.to_json(), handoff.handoff_id
    issued = issued_event(name).model_copy(update={"handoff": make_ref(text)})
    store.journal.commit(
        Commit(job_id, version_of(store, job_id), [issued], payloads=[text], due_at=2_000_000_000.0)
    )
    claimed = store.claims.claim(ClaimRequest(job_id, name, compute_digest(text), "w1"))
    claimed.checkpoint(replied(0), cleared("a", "b"))

    show_handoffs(jobs, job_id, [name], as_json=False)

    _, _, printed = capsys.readouterr().out.partition(f"=== context of {name}\n")
    assert printed.startswith("2 results cleared, about 3,000 tokens\n")
