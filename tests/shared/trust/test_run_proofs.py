"""Proofs of runs: only a worker of the role can make them, for one run and one result."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust, check_run, prove_run
from handoff_queue.shared.types.errors import UntrustedMessage, UserError
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest

RUN = (
    JobId("j-0123456789ab"),
    HandoffId("find.1"),
    compute_digest("request"),
    compute_digest("result"),
)
OTHER_RUNS = [
    pytest.param((JobId("j-0123456789ac"), *RUN[1:]), id="job"),
    pytest.param((RUN[0], HandoffId("find.2"), *RUN[2:]), id="handoff"),
    pytest.param((*RUN[:2], compute_digest("another request"), RUN[3]), id="request"),
    pytest.param((*RUN[:3], compute_digest("another result")), id="result"),
]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with the keys of an installation."""
    make_keys(tmp_path, ("researcher", "analyst"))
    return tmp_path


def trust_of(keys: Path, identity: str) -> Trust:
    return Trust(keys, find_private_key_file(keys, identity))


def holds(trust: Trust, proof: str) -> bool:
    """Return whether the process accepts a proof of `RUN` by a worker of researcher."""
    try:
        check_run(trust, "researcher", proof, *RUN)
    except UntrustedMessage:
        return False
    return True


def test_the_proof_of_a_worker_of_the_role_holds(keys: Path) -> None:
    worker = trust_of(keys, "worker-researcher")
    assert holds(worker, prove_run(worker, *RUN))


@pytest.mark.parametrize("other", OTHER_RUNS)
def test_a_proof_is_worthless_for_another_run(
    keys: Path, other: tuple[JobId, HandoffId, str, str]
) -> None:
    worker = trust_of(keys, "worker-researcher")
    proof = prove_run(worker, *RUN)
    with pytest.raises(UntrustedMessage):
        check_run(worker, "researcher", proof, *other)


@pytest.mark.parametrize("proof", ["", "run", "a" * 16 + ".c2lnbmVk"])
def test_a_missing_or_invented_proof_is_refused(keys: Path, proof: str) -> None:
    with pytest.raises(UntrustedMessage):
        check_run(trust_of(keys, "worker-researcher"), "researcher", proof, *RUN)


def test_a_worker_of_another_role_cannot_prove_a_run(keys: Path) -> None:
    proof = prove_run(trust_of(keys, "worker-analyst"), *RUN)
    with pytest.raises(UntrustedMessage, match="which is not a worker of researcher"):
        check_run(trust_of(keys, "worker-researcher"), "researcher", proof, *RUN)


@pytest.mark.parametrize("identity", ["client", "console", "supervisor"])
def test_a_process_that_is_not_a_worker_cannot_prove_a_run(keys: Path, identity: str) -> None:
    with pytest.raises(UserError, match="may not sign result"):
        prove_run(trust_of(keys, identity), *RUN)


def test_without_keys_a_run_needs_no_signature() -> None:
    assert prove_run(NO_TRUST, *RUN) == ""
    assert holds(NO_TRUST, "")
