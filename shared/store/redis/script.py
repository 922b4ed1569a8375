"""Lua scripts: their sources, and how to call them.

Each script starts with all its parts, and each call defines their functions again. So a script
includes only the parts that it calls. The tables AMOUNTS and MEASURES of the scripts are those of
`budget_measures.py`, and OWN_ROLES has the roles of the supervisor from `names.py`.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES, Amount, Measure
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, ROLES

PARTS = (
    "parts/metrics",
    "parts/redis_values",
    "parts/jobs",
    "parts/journal",
    "parts/fencing_tokens",
    "parts/claim_history",
    "parts/retention",
    "parts/waiting_sets",
    "parts/open_jobs",
    "parts/tool_call_approvals",
    "parts/user_messages",
    "parts/budgets",
    "parts/verified_usage",
    "parts/pauses",
    "parts/circuit_breaker",
    "parts/rate_limiter",
    "parts/model_call_admission",
    "parts/outage_grace",
    "parts/job_evaluations",
    "parts/shared_runs",
    "parts/claims",
    "parts/handoff_tally",
    "parts/results",
    "parts/fair_order",
    "parts/job_filter",
)
"""Shared parts. Each depends only on earlier ones. A part has only definitions, which begin
with `local` at the beginning of a line.
"""
WITHOUT_SCRIPTS = re.compile(r"worker(-.*)?|flower|observer")
"""Names of the Redis users that may not load scripts (`acl.py`). Supervisors load all scripts."""
SCRIPTS_OF_WORKERS = frozenset({
    "ask_tool_call_approval", "claim", "dead_letter_unreadable", "defer", "fair_dequeue",
    "fair_dequeue_many", "fair_enqueue", "finish", "keep_fetched_page", "list_members",
    "push_dead_letter", "read_checkpoints", "read_list", "read_memory_notes", "read_payloads",
    "record_provider_answer", "release", "renew_lease", "store_memory_note", "take_messages",
    "tool_call_approval_answers", "turn", "untaken_messages",
})  # fmt: skip
"""The scripts that a worker or Flower runs."""
REFUSE_WORKERS = "redis.call('EXISTS', 'handoff:jobs')\n"
"""First command of all other scripts. Redis refuses this command to workers and Flower, so they
cannot make Redis decode an argument of 500 MB.
"""
WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"^\s*--.*\n|\s+-- .*$", re.MULTILINE)
DEFINED = re.compile(r"local (?:function )?([\w, ]+)")
WITHOUT_VALUE = re.compile(r"local [\w, ]+\s*")
"""The declaration of a variable without its value."""


PAUSE_S = 0.5
"""Seconds before `ScriptsMissing`. Celery ends a worker whose consumer starts again five times in
one second.
"""


class ScriptsMissing(RedisConnectionError):
    """Redis does not have the scripts, for example after a restart, and the user of this process
    may not load them. A caller repeats its call, as while Redis starts.
    """


def list_script_names() -> list[str]:
    """Return the names of all scripts, in order."""
    names: list[str] = []
    for path in (files("handoff_queue.shared.store") / "lua").iterdir():
        if path.name.endswith(".lua"):
            names.append(path.name.removesuffix(".lua"))
    return sorted(names)


def may_load(user: str | None) -> bool:
    """Return whether a Redis user may load scripts."""
    return not (user and WITHOUT_SCRIPTS.fullmatch(user))


def get_user(client: Any) -> str | None:
    """Return the Redis user of a client."""
    user: str | None = client.connection_pool.connection_kwargs.get("username")
    return user


def build_source(name: str) -> str:
    """Return the text of a script as Redis gets it: the definitions that it needs, and its code."""
    code = _read_code(name)
    words = set(WORD.findall(code))
    blocks: list[str] = []
    for part in reversed(_read_parts()):
        later_words = set(words)
        needed: list[Definition] = []
        for definition in reversed(part):
            if definition.names & words:
                needed.insert(0, definition)
                words |= definition.words
        blocks.insert(0, _build_block(needed, later_words))
    check = "" if name in SCRIPTS_OF_WORKERS else REFUSE_WORKERS
    return "".join((check, *blocks, code))


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of a part."""

    names: frozenset[str]
    """The names that it defines."""
    text: str

    @property
    def words(self) -> set[str]:
        return set(WORD.findall(self.text))


def _build_block(definitions: Sequence[Definition], later_words: Collection[str]) -> str:
    """Return the text of the definitions of a part. The names that only this part uses are in a
    separate block, because a function of Lua has at most 200 local variables.

    Args:
        later_words: the words of all code after the part.
    """
    shared = [definition for definition in definitions if definition.names & set(later_words)]
    if len(shared) == len(definitions):
        return "".join(definition.text for definition in definitions)
    names: list[str] = []
    texts: list[str] = []
    for definition in definitions:
        if definition not in shared:
            texts.append(definition.text)
            continue
        names += sorted(definition.names)
        if not WITHOUT_VALUE.fullmatch(definition.text):
            texts.append(definition.text.removeprefix("local "))
    if not names:
        return ""
    return f"local {', '.join(names)}\ndo\n{''.join(texts)}end;\n"


@cache
def _read_parts() -> tuple[tuple[Definition, ...], ...]:
    """Return the definitions of each part. The tables of Python are the first part."""
    own_roles = [f"{name} = true" for name in (*ROLES, CHILD_JOB_SPECIALIST)]
    tables = (
        _build_table("AMOUNTS", map(_build_amount_row, AMOUNTS)),
        _build_table("MEASURES", map(_build_measure_row, MEASURES)),
        _build_table("OWN_ROLES", own_roles),
    )
    return (tables, *map(_read_definitions, PARTS))


def _read_definitions(part: str) -> tuple[Definition, ...]:
    """Return the definitions in the file of a part."""
    definitions: list[Definition] = []
    for text in re.split(r"^(?=local )", _read_code(part), flags=re.MULTILINE):
        match = DEFINED.match(text)
        if match:
            names = WORD.findall(match[1])
            definitions.append(Definition(frozenset(names), text))
    return tuple(definitions)


def _build_table(name: str, rows: Iterable[str]) -> Definition:
    """Return the definition of a table of Python in Lua."""
    return Definition(frozenset({name}), f"local {name} = {{ {', '.join(rows)} }}\n")


def _build_amount_row(amount: Amount) -> str:
    """Return a row of the table of amounts in Lua."""
    return _build_row(name=amount.name, total=amount.total, reserved=amount.reserved)


def _build_measure_row(measure: Measure) -> str:
    """Return a row of the table of measures in Lua."""
    return _build_row(
        stored_limit=measure.stored_limit,
        kept=measure.kept,
        reserved=measure.reserved,
        needed=f"needed_{measure.name}",
        day_cap=f"day_{measure.name}",
        tenant_cap=f"tenant_day_{measure.name}",
        amounts=[amount.name for amount in measure.amounts],
        totals=[amount.total for amount in measure.amounts],
    )


def _build_row(**fields: str | list[str]) -> str:
    """Return a table in Lua. No value has a quotation mark."""
    parts: list[str] = []
    for name, value in fields.items():
        text = repr(value)
        if isinstance(value, list):
            text = f"{{ {', '.join(map(repr, value))} }}"
        parts.append(f"{name} = {text}")
    return f"{{ {', '.join(parts)} }}"


def _read_code(name: str) -> str:
    """Return the text of a Lua file without its comments."""
    file = files("handoff_queue.shared.store") / "lua" / f"{name}.lua"
    return COMMENT.sub("", file.read_text())


_HEADER = """
local KEYS = (function(given)
  local keys = {}
  for n, key in ipairs(given) do keys[n] = string.sub(key, %(length)d + 1) end
  return keys
end)(KEYS)
local redis = (function(plain)
  local only_keys = { DEL = true, EXISTS = true, UNLINK = true }
  local function prefixed(call)
    return function(command, key, ...)
      if key == nil then return call(command) end
      if not only_keys[command] then return call(command, '%(prefix)s' .. key, ...) end
      local keys = { key, ... }
      for n, name in ipairs(keys) do keys[n] = '%(prefix)s' .. name end
      return call(command, unpack(keys))
    end
  end
  return {
    call = prefixed(plain.call), pcall = prefixed(plain.pcall), sha1hex = plain.sha1hex,
  }
end)(redis)
"""
"""Lua in front of a script: the script names keys without the prefix, and Redis sees them with
it.
"""


class Script:
    """A Lua script that is loaded when the server does not know it, and runs by its digest.

    A user that may not load scripts gets `ScriptsMissing`. No user needs the right for EVAL. The
    `Script` class of redis-py checks the type of its client at each call, which takes as long
    as the rest of the call.
    """

    def __init__(self, text: str, prefix: str = "") -> None:
        """Make a script from its text.

        Args:
            prefix: prefix of every key that the script uses. Letters, digits and `.:_-`, because it
                becomes part of Lua's text.
        """
        header = ""
        if prefix:
            header = _HEADER % {"prefix": prefix, "length": len(prefix)}
        self._plain = text
        self._prefix = prefix
        self.text = header + text
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def with_prefix(self, prefix: str) -> Script:
        """Return this script with a prefix in front of every key."""
        if prefix:
            return _with_prefix(self._plain, prefix)
        return self

    def _add_prefix(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return number of keys, keys and arguments, with the prefix before each key."""
        if not self._prefix:
            return arguments
        end = 1 + int(arguments[0])
        return [
            arguments[0],
            *(f"{self._prefix}{key}" for key in arguments[1:end]),
            *arguments[end:],
        ]

    def run(self, client: Any, arguments: Sequence[Any]) -> Any:
        """Run the script, and return its answer. The errors of the client are raised, and
        `ScriptsMissing`.

        Args:
            arguments: the number of keys, the keys, the arguments.
        """
        try:
            return client.execute_command("EVALSHA", self.digest, *self._add_prefix(arguments))
        except NoScriptError as error:
            self._check_may_load(get_user(client), error)
            client.script_load(self.text)
            return client.execute_command("EVALSHA", self.digest, *self._add_prefix(arguments))

    def run_on(self, connection: Any, arguments: Sequence[Any]) -> Any:
        """Run the script once over a connection that no other thread uses. If the connection
        breaks, nothing is repeated; a client would repeat the call over another connection.
        """
        try:
            return _execute(connection, "EVALSHA", self.digest, *self._add_prefix(arguments))
        except NoScriptError as error:
            self._check_may_load(connection.username, error)
            _execute(connection, "SCRIPT LOAD", self.text)
            return _execute(connection, "EVALSHA", self.digest, *self._add_prefix(arguments))

    def send(self, connection: Any, arguments: Sequence[Any]) -> None:
        """Send the call over a connection that no other thread uses. `read_reply` reads its
        answer later.
        """
        connection.send_command("EVALSHA", self.digest, *self._add_prefix(arguments))

    def read_reply(self, read_answer: Callable[[], Any], connection: Any) -> Any:
        """Return the answer. If the server does not know the script, load it and return None."""
        try:
            return read_answer()
        except NoScriptError as error:
            self._check_may_load(connection.username, error)
            _execute(connection, "SCRIPT LOAD", self.text)
            return None

    def add(self, pipeline: Any, arguments: Sequence[Any]) -> Any:
        """Add the call to a pipeline."""
        return pipeline.execute_command("EVALSHA", self.digest, *self._add_prefix(arguments))

    def load(self, client: Any) -> None:
        """Load the script. Raises `ScriptsMissing` if the user may not load scripts."""
        self._check_may_load(get_user(client), None)
        client.script_load(self.text)

    def _check_may_load(self, user: str | None, error: NoScriptError | None) -> None:
        if not may_load(user):
            time.sleep(PAUSE_S)
            raise ScriptsMissing("no supervisor has loaded the scripts yet") from error


def _execute(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()


@cache
def _with_prefix(text: str, prefix: str) -> Script:
    return Script(text, prefix)
