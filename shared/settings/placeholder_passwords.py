"""Placeholders, such as `change-me`, that were not replaced by a secret.

Supervisors, workers and Flower refuse to start with them. Clients do not check: they own
neither the broker nor its password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.types.errors import UserError

HOW_TO_MAKE = "`openssl rand -hex 24` makes a good value"
MIN_WEBHOOK_SECRET_CHARS = 16
"""Least characters of HANDOFF_WEBHOOK_SECRET: 16 random letters have more than 64 bits."""
_ANYWHERE = re.compile(r"change(?:me|this|it)|replace(?:me|this)|placeholder|example")
_WHOLE = re.compile(
    r"(?:my|your|the|a)?"
    r"(?:admin|default|flower|guest|handoff|redis|root|test|webhook)*"
    r"(?:pass|passwd|password|pwd|secret|todo)?"
    r"\d{0,4}"
)


def is_placeholder(secret: str) -> bool:
    """Return whether a text is a placeholder for a secret. Case and punctuation do not count."""
    letters = re.sub(r"[\W_]", "", secret.casefold())
    if len(set(letters)) <= 1:  # "", "...", "xxxx"
        return True
    return bool(_ANYWHERE.search(letters) or _WHOLE.fullmatch(letters))


def load_process_settings() -> Settings:
    """Return the settings of a supervisor, worker or Flower process.

    Raises:
        UserError: a setting is wrong, or a secret is a placeholder. The message names the variable,
            and never has its value.
    """
    settings = load_settings()
    if settings.redis_url is not None:
        address = read_address(settings.redis_url.get_secret_value())
        for password in (address.password, address.sentinel_password):
            if password is not None and is_placeholder(password):
                raise UserError(
                    "the password in HANDOFF_REDIS_URL is a placeholder: set a password of your"
                    f" own; {HOW_TO_MAKE}"
                )
    if settings.webhook_secret is not None:
        _check_webhook_secret(settings.webhook_secret.get_secret_value())
    return settings


def _check_webhook_secret(secret: str) -> None:
    if is_placeholder(secret):
        raise UserError(
            f"HANDOFF_WEBHOOK_SECRET is a placeholder: set a secret of your own; {HOW_TO_MAKE}"
        )
    if len(secret) < MIN_WEBHOOK_SECRET_CHARS:
        raise UserError(
            f"HANDOFF_WEBHOOK_SECRET has fewer than {MIN_WEBHOOK_SECRET_CHARS} characters, so a"
            " receiver of one tenant could guess it from its own secret: set a longer secret;"
            f" {HOW_TO_MAKE}"
        )


def check_log_ins(log_ins: Iterable[str]) -> None:
    """Check the log-ins of Flower's page, each `user:password`.

    Raises:
        UserError: a log-in is not `user:password`, or a password is a placeholder or equals the
            user. The message names FLOWER_BASIC_AUTH, and never has its value.
    """
    for log_in in log_ins:
        user, _, password = log_in.partition(":")
        if not user or not password:
            raise UserError("FLOWER_BASIC_AUTH has a log-in that is not user:password: write both")
        if password == user or is_placeholder(password):
            raise UserError(
                "the password in FLOWER_BASIC_AUTH is a placeholder: set a password of your own,"
                f" as user:password; {HOW_TO_MAKE}"
            )
