"""The name of each function says what the function does: it begins with a verb."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from handoff_queue import testing

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "shared",
    "supervisor",
    "workers",
    "handoff_queue/testing",
    "chaos",
    "benchmarks",
    "docs/generator",
)
VERBS = frozenset(
    """
abandon accept ack act adapt add admit adopt advance advise allow announce answer append apply
approve arbitrate arm ask assemble assess assign attach attempt audit authenticate authorize avoid
await backdate become begin bill bind block build cache call cancel cap change check checkpoint
choose claim clamp clean clear clip close code collapse collect commit compact compare compile
complete compute conclude configure confine confirm connect continue converse convert copy count
create cut decide declare decode decompress decrypt default defer define delay delegate delete
deliver demand derive describe die digest disarm do draft draw drop encode end enqueue ensure enter
escape estimate evaluate evolve examine execute exit expand expect explain export extract fail fetch
fill filter find finish fit flatten flush fold follow force forget fork format gather generate get
give go grade grant group hand handle hash have heartbeat hide hold host ignore import indent index
init insert install interrupt invoke issue iterate join judge keep kill learn leave limit link lint
list listen load log login logout look lookup lose lower main make map mark match mean measure merge
move name next normalize number observe open outlive pace pack parse patch pause pin place plan poll
post postpone prepare press price print process produce prompt prove provoke proxy publish purge put
qualify query queue quote raise rank rate reach read rebuild receive record redact reduce refill
refuse register reject relay release reload remember remove rename render renew reopen repair repeat
replace replan replay reply report represent request requeue require reserve reset resolve respond
rest restart restore retire retrieve retry reuse review revoke rotate round route run runs salvage
sample sanitize say schedule score scrape seal search select send separate serve set settle setup
shape share shorten show shutdown sign simplify simulate skip sleep sort spawn spell spend split
squeeze start startup stay step stop store stream strike strip submit subscribe suggest sum sweep
synthesize take talk tell tidy toggle touch trace translate truncate try tune understand undo
unescape union unpack unpause unsubscribe unwrap unzip update use validate verify view visit wait
wake walk warm warn watch withdraw work wrap write
""".split()
)
STATEMENTS = frozenset(
    """
abbreviates accepts acts agree allows announces answers are asks caches can carries changes checks
clears closes comes contains contradict contradicts costs decides denies depends differ differs does
ends escapes exceeds exclude exits explains fits frees gives goes had has hits holds includes
inserts is lacks leads leaves looks matches may means mentions names needs overlaps owns passes
refuses repeats resolves serves shares should shows supports takes uses waits wants was will writes
""".split()
)
"""First words of functions that return whether a statement is true."""
TRUTH_VALUES = ("bool", "bool | None")
"""Return types of such functions. None: unknown."""
PARTICLES = frozenset("aclose as for from in no now on only to with without".split())
"""First words of conversions, of changed copies, and of handlers of events."""
NOUNS = frozenset(
    """
Pool acting_as aiter_bytes arguments_of brpop_start chaos chat compose_mapping_node
compose_node connection_for_read connection_for_write dead doctor drawing event_batches
event_from_message event_stream events fields fileno first_clash golden handoff handoffs info
items keys kw_arguments_schema mcp memory model_copy new newest note notes of of_fields
on_tick openapi outline parts q_for_pri raw_decode recv recv_into redirect_request result rows
schedules sendall settings_customise_sources specialists stats status str_replace subject_of
submission submitting submitting_each supervisor token tokens tool top up values within worker
wrapper
""".split()
)
"""Functions with the names of other things: of a command, of a method of the public client, or of a
method that a library calls.
"""
ROUTES = ("router.", "app.")
"""Beginnings of decorators of HTTP routes. A route has the name of its resource."""
UNITS = frozenset("s ms".split())
"""Last words of the names of amounts."""
BUILDERS = frozenset(testing.__all__)
"""Functions for tests of users. Each has the name of the thing that it returns, as a class has."""
KEYS = ROOT / "shared" / "store" / "keys.py"
"""Each function of this module has the name of a Redis key."""


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def has_other_name(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a property, a context manager or a route."""
    for decorator in map(ast.unparse, function.decorator_list):
        if "property" in decorator or "contextmanager" in decorator:
            return True
        if any(route in decorator for route in ROUTES):
            return True
    return False


def says_what_it_does(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a name begins with a verb. The first word of `filter_of` and of `poll_s` is a
    noun.
    """
    name = function.name.strip("_")
    words = name.split("_")
    if name in NOUNS | BUILDERS or function.name.startswith("__"):
        return True
    if function.returns is not None and ast.unparse(function.returns) in TRUTH_VALUES:
        return not (VERBS | STATEMENTS).isdisjoint(words)
    if len(words) == 2 and (words[1] == "of" or words[1] in UNITS):
        return False
    return words[0] in VERBS | PARTICLES


def test_the_name_of_a_function_begins_with_a_verb() -> None:
    wrong: list[str] = []
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        for function in functions(path):
            if path != KEYS and not has_other_name(function) and not says_what_it_does(function):
                wrong.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name}")
    assert wrong == []
