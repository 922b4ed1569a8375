"""Signatures of the announcements of workers.

An announcement is valid for a short time, and is signed with its time, so that an old one cannot be
announced again. Each key has one vote about the version of a specialist.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from handoff_queue.shared.trust.keyring import Right
from handoff_queue.shared.trust.signatures import Signer, Trust
from handoff_queue.shared.types.errors import UntrustedMessage
from handoff_queue.shared.types.presence import Announcement

VALID_FOR_S = 60.0
"""Seconds for which a signed announcement is valid. Clocks of hosts do not count: both ends use
Redis's clock.
"""
MAX_TIME_DIGITS = 12
"""Digits of the largest time, in Unix seconds. A worker that was taken over may sign any number,
and no float holds a number of 400 digits.
"""


@dataclass(frozen=True, slots=True)
class SignedAnnouncement:
    """An announcement with the identity that signed it."""

    announcement: Announcement
    signer: Signer | None
    """None: this process has no keyring."""

    @property
    def vote(self) -> str:
        """Return the name under which the announcement votes: its key, or its worker."""
        if self.signer is None:
            return self.announcement.worker
        return self.signer.key_id


def sign_announcement(trust: Trust, announcement: Announcement, now: float) -> str:
    """Return the stored form of an announcement.

    Raises:
        UserError: this process has no key, or may not announce.
    """
    text = announcement.to_json()
    if not trust.is_on:
        return text
    at = str(int(now))
    signature = trust.sign(Right.ANNOUNCE, at, text)
    return json.dumps({"announcement": text, "at": at, "signature": signature})


def get_announcement_text(stored_form: str | bytes) -> str | bytes:
    """Return the announcement in its stored form, without a check."""
    try:
        fields = json.loads(stored_form)
    except (ValueError, RecursionError):
        return stored_form
    text = fields.get("announcement") if isinstance(fields, dict) else None
    return text if isinstance(text, str) else stored_form


def read_announcement(trust: Trust, stored_form: str | bytes, now: float) -> SignedAnnouncement:
    """Return an announcement. With a keyring, it has only the specialists that its signer may
    announce.

    Raises:
        MalformedMessage: the stored form cannot be read.
        UntrustedMessage: the signature does not hold, or the announcement is old.
    """
    text = get_announcement_text(stored_form)
    if not trust.is_on:
        return SignedAnnouncement(Announcement.from_json(text), None)
    if text is stored_form:
        raise UntrustedMessage("it has no signature")
    fields = json.loads(stored_form)
    at, signature = fields.get("at"), fields.get("signature")
    is_time = isinstance(at, str) and at.isdecimal() and len(at) <= MAX_TIME_DIGITS
    if not isinstance(text, str) or not is_time:
        raise UntrustedMessage("it has no signature")
    signer = trust.check(Right.ANNOUNCE, signature, at, text, again=True)
    if abs(now - int(at)) > VALID_FOR_S:
        raise UntrustedMessage("it is an old announcement")
    announcement = Announcement.from_json(text)
    for spec in announcement.specialists:
        signer.check_serves(spec.name)
    return SignedAnnouncement(announcement, signer)
