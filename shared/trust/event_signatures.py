"""Signatures of the events of a journal.

The last event of a batch has the signature of the whole batch as its last JSON field. All events of
one script are a batch. The signature is bound to the job, so a batch is worthless in another job.
Results and most decisions have codes for the readers of journals in place of a signature, because
a signature costs more than all the codes.

- A *decision* is bound to the version of the journal that its writer has read. It cannot be put
  after a later decision.
- A *fact* is appended at any version. It has a random word, so that a reader finds a second copy.
  The word of a result is the fence of its claim. So only the holder of the claim can end it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

from handoff_queue.shared.trust.keyring import Identity, Right
from handoff_queue.shared.trust.signatures import Signer, Trust
from handoff_queue.shared.types.errors import UntrustedMessage
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    Event,
    HandoffFinished,
    JobEnded,
    JobSubmitted,
    Rejected,
    RetryRequested,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.ids import HandoffId, JobId

DECISION, FACT = "decision", "fact"
_BEFORE, _AFTER = ',"signature":"', '"}'
_MAX_STAMP_CHARS = 700
"""Characters of a stamp with `MAX_CODES` codes."""
_CODED = (Right.DECIDE, Right.RESULT, Right.SUBMIT)
"""Rights for which a code is as good as a signature. A supervisor could write such events, too.
So a code of another process with its key is not a danger.
"""
WORD_BYTES = 6
"""Random bytes of a fact's word."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The signature of a batch, with the data that the signature is about."""

    kind: str
    count: int
    """Events of the batch."""
    place: str
    """The version that the writer of a decision has read, or the random word of a fact."""
    signature: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.count}/{self.place}/{self.signature}"


def sign_events(
    trust: Trust,
    job_id: JobId,
    events: Sequence[Event],
    after: int | None = None,
    word: str = "",
) -> list[str]:
    """Return the events as JSON, the last one with the signature of all. Without a keyring they
    have no signature.

    Args:
        after: version of the journal that the writer of a decision has read. None: the events are
            facts.
        word: the word of a fact that ends a handoff: the fence of the claim, which is over then.
            Empty: a random word.

    Raises:
        UserError: this process has no key, or may not write such events.
    """
    texts: list[str] = []
    for event in events:
        texts.append(event.to_json())
    if not trust.is_on or not texts:
        return texts
    signer = trust.signer
    for event in events:
        if not may_write(signer, event):
            raise trust.build_wrong_key_error(f"sign {event.type}", partial(_is_writer, event))
    kind, place = FACT, word or token_hex(WORD_BYTES)
    if after is not None:
        kind, place = DECISION, str(after)
    sign = trust.code_events
    if any(map(_needs_signature, events)):
        sign = trust.sign_events
    signature = sign(kind, job_id, place, *texts)
    stamp = Stamp(kind, len(texts), place, signature)
    texts[-1] = f"{texts[-1][:-1]}{_BEFORE}{stamp}{_AFTER}"
    return texts


def without_signature(raw: bytes) -> tuple[bytes, str]:
    """Return the JSON of an event, and its stamp as text; '' without a signature."""
    if not raw.endswith(_AFTER.encode()):
        return raw, ""
    start = raw.rfind(_BEFORE.encode(), max(0, len(raw) - _MAX_STAMP_CHARS))
    if start < 0:
        return raw, ""
    stamp = raw[start + len(_BEFORE) : -len(_AFTER)].decode("ascii", "replace")
    if '"' in stamp or "\\" in stamp:
        return raw, ""
    return raw[:start] + b"}", stamp


def read_stamp(text: str) -> Stamp:
    """Parse a stamp.

    Raises:
        UntrustedMessage: the text is not a stamp.
    """
    kind, _, rest = text.partition("/")
    count, _, rest = rest.partition("/")
    place, _, signature = rest.partition("/")
    is_stamp = kind in (DECISION, FACT) and re.fullmatch("[1-9][0-9]{0,6}", count) and signature
    if not is_stamp or (kind == DECISION and not place.isdecimal()):
        raise UntrustedMessage("it has no signature")
    return Stamp(kind, int(count), place, signature)


def check_batch(
    trust: Trust, job_id: JobId, texts: Sequence[str], stamp: Stamp, events: Sequence[Event]
) -> Signer:
    """Return the identity that signed a batch. Its code for a supervisor is enough if a supervisor
    could write the events.

    Raises:
        UntrustedMessage: the signature does not hold for these events in this job.
    """
    codes = all(get_right(event) in _CODED for event in events)
    return trust.find_signer(stamp.signature, stamp.kind, job_id, stamp.place, *texts, codes=codes)


def _is_writer(event: Event, identity: Identity) -> bool:
    return may_write(Signer("", identity), event)


def may_write(signer: Signer, event: Event) -> bool:
    """Return whether an identity may write an event. A result also needs the specialist."""
    if get_right(event) is Right.RESULT:
        return signer.may(Right.RESULT) or signer.may(Right.DECIDE)
    return signer.may(get_right(event))


def _needs_signature(event: Event) -> bool:
    """Return whether an event needs a signature, because codes for the readers of journals are not
    enough. It is an action of a user, a worker reads it, or it ends the job.
    """
    if isinstance(event, Approved | Rejected | JobEnded):
        return True
    return get_right(event) not in (Right.RESULT, Right.DECIDE)


def find_handoff(event: Event) -> HandoffId | None:
    """Return the handoff whose worker writes an event; None: no worker writes such events."""
    match event:
        case HandoffFinished() | UserMessageTaken():
            return event.handoff_id
        case ApprovalAsked() if event.call is not None:
            return event.call.handoff_id
        case _:
            return None


def get_right(event: Event) -> Right:  # noqa: PLR0911 (one case an event)
    """Return the right that the writer of an event needs."""
    match event:
        case HandoffFinished() | UserMessageTaken():
            return Right.RESULT
        case ApprovalAsked() if event.call is not None:
            return Right.RESULT
        case JobSubmitted(parent=None):
            return Right.SUBMIT
        case CancelRequested(by="user"):
            return Right.CANCEL
        case RetryRequested(continuation=None):
            return Right.RETRY
        case Approved(by="user") | Rejected():
            return Right.APPROVE
        case UserMessageSent():
            return Right.SAY
        case _:
            return Right.DECIDE
