"""Proofs of runs that equal handoffs share.

The worker of a run signs the job, the handoff, the name of the run and the digest of the result. A
handoff that copies the result checks that a worker of its own role has signed them. The name
depends on the tenant and on the whole request (`shared.runtime.shared_run`).
"""

from __future__ import annotations

from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.trust.signatures import Trust
from handoff_queue.shared.types.ids import Digest, HandoffId, JobId

PURPOSE = "shared-run"


def prove_run(
    trust: Trust, job_id: JobId, handoff_id: HandoffId, run_name: str, result: Digest
) -> str:
    """Return the signature of a run by this process; '' without a keyring.

    Raises:
        UserError: this process has no key, or may not sign results.
    """
    return trust.sign_for((Right.RESULT,), PURPOSE, job_id, handoff_id, run_name, result)


def check_run(
    trust: Trust,
    role: str,
    proof: str,
    job_id: JobId,
    handoff_id: HandoffId,
    run_name: str,
    result: Digest,
) -> None:
    """Check the proof of a run by a worker of this role. Without a keyring, every proof holds.

    Raises:
        UntrustedMessage: the proof is missing or wrong, or its signer is not a worker of the role.
    """
    if not trust.is_on:
        return
    signer = trust.signer_of(proof, PURPOSE, job_id, handoff_id, run_name, result)
    signer.check(Right.RESULT)
    signer.check_role(role)
