"""The error for an unusable port is one line with the caller's advice."""

from __future__ import annotations

import errno
import socket

import pytest

from handoff_queue.shared.settings.ports import (
    build_unusable_port_error,
    check_port,
    find_free_port,
    is_free,
)
from handoff_queue.shared.types.errors import UserError


def test_a_port_with_another_listening_process_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        assert not is_free(port)
        with pytest.raises(
            UserError, match=f"^port {port} is taken by another process: use --port"
        ):
            check_port(port, "use --port")


def test_a_port_that_another_process_has_on_all_addresses_is_in_use() -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        assert not is_free(other.getsockname()[1])


def test_a_free_port_is_free() -> None:
    port = find_free_port()

    assert is_free(port)
    check_port(port, "use --port")


def test_a_port_that_needs_more_rights_is_not_reported_as_in_use() -> None:
    line = str(
        build_unusable_port_error(
            80, PermissionError(errno.EACCES, "Permission denied"), "use --port"
        )
    )

    assert line == "port 80 cannot be used (Permission denied): use --port"
