"""A script in Lua that Redis runs: known to the server by its digest once it has been sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError


class Script:
    """Loaded where the server does not know it yet, and run by its digest; who may do both need not be allowed EVAL. redis-py's own
    `Script` asks at each call what kind of client it was given, which takes as long as the rest of the call.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Any, order: Sequence[Any]) -> Any:
        """`order`: the number of keys, the keys, the arguments. Raises what the client raises."""
        try:
            return client.execute_command("EVALSHA", self.digest, *order)
        except NoScriptError:
            client.script_load(self.text)
            return client.execute_command("EVALSHA", self.digest, *order)

    def run_over(self, connection: Any, order: Sequence[Any]) -> Any:
        """Over a connection that nobody else uses just now, and once: where it breaks, a client would say it again over another."""
        try:
            return _asked(connection, "EVALSHA", self.digest, *order)
        except NoScriptError:
            _asked(connection, "SCRIPT LOAD", self.text)
            return _asked(connection, "EVALSHA", self.digest, *order)

    def say(self, connection: Any, order: Sequence[Any]) -> None:
        """Over such a connection, and its answer is heard later."""
        connection.send_command("EVALSHA", self.digest, *order)

    def heard(self, read: Callable[[], Any], connection: Any) -> Any:
        """That answer; None: the server did not know the script, and does now."""
        try:
            return read()
        except NoScriptError:
            _asked(connection, "SCRIPT LOAD", self.text)
            return None

    def add(self, pipeline: Any, order: Sequence[Any]) -> None:
        """To what the pipeline will send, which has brought the script along."""
        pipeline.execute_command("EVALSHA", self.digest, *order)


def _asked(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()
