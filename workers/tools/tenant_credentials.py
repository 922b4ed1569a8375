"""Credentials of a tenant for the user's tools, from a function of the operator.

The worker calls the function, and not the tool host. A call is a fork of the host, and would find
the credentials of other tenants in memory. A tool names its credentials in its code. The model
names none, and sees none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.observability.redaction import SecretSpellings
from handoff_queue.shared.settings.operator_functions import import_function
from handoff_queue.shared.settings.settings import Settings

MAX_CHARS = 32_768
"""Characters of the longest credential. It becomes a variable of the environment."""
Provider = Callable[[str, str], object]
"""Takes the tenant of the job and the name of a credential, and returns the credential as a text,
or None.
"""
log = get_log(__name__)


def load_provider(settings: Settings) -> Provider | None:
    """Return the function that the settings name, or None.

    Raises:
        UserError: the function cannot be imported.
    """
    place = settings.tenant_credential_function
    if place is None:
        return None
    return import_function(place, "HANDOFF_TENANT_CREDENTIAL_FUNCTION")


def get_credentials(
    provider: Provider | None, tool: str, tenant: str, names: Sequence[str]
) -> dict[str, str]:
    """Return the credentials of a tenant by name.

    Raises:
        ToolFailed: there is no such credential, or the function has failed. No value is in the
            message.
    """
    if provider is None:
        raise ToolFailed(
            f"{tool} is not set up: its worker has no HANDOFF_TENANT_CREDENTIAL_FUNCTION"
        )
    values: dict[str, str] = {}
    for name in names:
        try:
            value = provider(tenant, name)
        except Exception as error:  # noqa: BLE001 (the code of an operator)
            log.warning(
                "no credential for a tool",
                tool=tool,
                tenant=tenant,
                credential=name,
                why=type(error).__name__,
            )
            value = None
        if not isinstance(value, str) or not 0 < len(value) <= MAX_CHARS or "\0" in value:
            raise ToolFailed(f"{tool} is not set up for this tenant: it has no {name}")
        values[name] = value
    return values


def without_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the name of each secret in place of its value, in each of its
    spellings.
    """
    names_by_value = {value: f"[{name}]" for name, value in values.items()}
    return SecretSpellings(names_by_value).replace_secrets_in(text)
