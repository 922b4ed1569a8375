"""The HTTP session for a collector. It reads no body of an answer, because a long body would fill
the memory of the process. OpenTelemetry uses only the status and the headers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

_CREDENTIAL_PROVIDER = "_CREDENTIAL_PROVIDER"
"""The end of OpenTelemetry's variables that name a session of the user."""


def create_session() -> requests.Session | None:
    """Return a session for an exporter. None: the environment names a session of the user."""
    for name, value in os.environ.items():
        if name.startswith("OTEL_PYTHON_") and name.endswith(_CREDENTIAL_PROVIDER) and value:
            return None
    import requests  # its import opens a socket

    class HeadSession(requests.Session):
        """Closes each answer after its head."""

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            answer = super().send(request, **{**options, "stream": True})
            answer.close()
            answer._content = b""
            return answer

    return HeadSession()
