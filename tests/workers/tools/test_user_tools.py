"""A typed function with a docstring becomes a tool. Other code in the file is refused or
ignored.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from handoff_queue.shared.agent.opening_message import READ_RESULT
from handoff_queue.shared.agent.tool import Image, Tool, ToolOutput
from handoff_queue.shared.agent.tool_calls import run_tool
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools import registry
from handoff_queue.workers.tools.hosted_tools import HostedTools
from handoff_queue.workers.tools.registry import BUILT_IN, build_registry
from handoff_queue.workers.tools.tool_decorator import DEFAULT_TIMEOUT_S, tool
from handoff_queue.workers.tools.tool_host_protocol import ToolDefinition
from handoff_queue.workers.tools.user_tools import load_installed_tools, load_tools
from tests.doubles.function_tools import hosted, write_tools
from tests.doubles.handoffs import a_tool
from tests.workers.tools.contexts import ToolHarness
from tests.workers.tools.test_values import PNG

pytestmark = pytest.mark.slow

WEATHER = '''
import os
from pathlib import Path
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.workers.tools.tool_decorator import tool

def weather(city: str, days: int = 1) -> str:
    """The weather of a city.

    Args:
        city: Its name.
        days: How far ahead to look.
    """
    return f"{city}: rain for {days} days"

@tool(secrets=["WEATHER_TOKEN"], repeatable=False)
def report(city: str) -> str:
    """Report the weather of a city to the office."""
    if city == "nowhere":
        raise ToolFailed("refused with " + os.environ["WEATHER_TOKEN"])
    return "reported with " + os.environ["WEATHER_TOKEN"]

def _private(x):
    return x
'''


NAMES = """
    def names() -> str:
        \"\"\"All names.\"\"\"
        return b"caf\\xe9".decode("utf-8", "surrogateescape")
"""
LEAK = '''
    import os
    def leak() -> dict[str, str]:
        """Leaks."""
        return {"it": os.environ["TOKEN"]}
    leak.secrets = "TOKEN"
'''
FETCH = '''
    from handoff_queue.shared.agent.tool import ToolFailed

    def fetch(a: int) -> str:
        """Fetch it."""
        if not a:
            raise ToolFailed("give an a above 0")
        raise OSError("no route to https://shop.example/?key=canary")
'''
KINDS = '''
import functools
from handoff_queue.workers.tools.tool_decorator import CallContext, tool

def _decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)
    return wrapper

def _price(item: str, region: str) -> str:
    """The price of an item."""
    return f"{item} in {region}"

@functools.cache
def cached(item: str) -> str:
    """The price of an item, looked up once."""
    return _price(item, "any")

@_decorated
async def asked(item: str, context: CallContext) -> str:
    """The price of an item, asked for."""
    return _price(item, context.tenant)

class _Shop:
    """A shop."""
    @classmethod
    def of_class(cls, item: str) -> str:
        """The price of an item in all shops."""
        return _price(item, cls.__name__)
    def __call__(self, item: str) -> str:
        """The price of an item here."""
        return _price(item, "here")

price_eu = tool()(functools.partial(_price, region="eu"))
price_here = tool()(_Shop())
of_class = _Shop.of_class
left_alone = functools.partial(_price, region="us")
same = cached
'''


RESULTS = '''
    import asyncio
    import base64
    import dataclasses
    import pydantic

    @dataclasses.dataclass
    class Row:
        price: float

    class Order(pydantic.BaseModel):
        row: Row

    async def order() -> Order:
        """Return a model from a coroutine."""
        return await asyncio.to_thread(Order, row=Row(price=1.5))

    def note() -> bytes:
        """Return bytes of UTF-8."""
        return "caf\\xe9".encode()

    def chart(data: str) -> list[object]:
        """Return an image in a list."""
        return ["sales", base64.b64decode(data)]
'''


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tool]]:
    """Yield the tools of all files above, in a tool host."""
    files = {
        "weather": WEATHER,
        "names": NAMES,
        "leak": LEAK,
        "fetch": FETCH,
        "kinds": KINDS,
        "results": RESULTS,
    }
    with hosted(write_tools(tmp_path_factory.mktemp("tools"), files)) as tools:
        yield tools


def definitions(folder: Path, **files: str) -> dict[str, ToolDefinition]:
    return {tool.name: tool.definition for tool in load_tools(write_tools(folder, files))}


def refusal(folder: Path, **files: str) -> str:
    with pytest.raises(InvalidTool) as caught:
        definitions(folder, **files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_public_functions_of_a_file_become_tools(tools: dict[str, Tool], tmp_path: Path) -> None:
    assert sorted(definitions(tmp_path, weather=WEATHER)) == ["report", "weather"]
    weather = tools["weather"]
    assert weather.description.startswith("The weather of a city.")
    assert weather.input_schema["properties"]["city"]["type"] == "string"
    assert weather.input_schema["required"] == ["city"]
    assert ToolHarness().call(weather, city="Oslo", days=3) == "Oslo: rain for 3 days"


def test_half_a_surrogate_pair_in_a_tools_result_can_be_stored(tools: dict[str, Tool]) -> None:
    """A file name on disk may contain half a surrogate pair."""
    observed = run_tool({"id": "t", "name": "names", "input": {}}, tools, ToolHarness().context)

    assert (observed.text, observed.is_error) == ("caf\ufffd", False)


def test_a_tool_is_repeatable_by_default(tools: dict[str, Tool]) -> None:
    assert tools["weather"].repeatable
    assert not tools["report"].repeatable


def test_a_decorator_without_parentheses_marks_a_tool_with_all_defaults(tmp_path: Path) -> None:
    head = "from handoff_queue import tool\n"
    bare = f"{head}@tool\ndef f() -> str:\n    'Says.'\n    return 'x'\n"
    called = bare.replace("@tool", "@tool()").replace("f()", "g()")

    f, g = load_tools(write_tools(tmp_path, {"bare": bare, "called": called}))

    assert (f.definition.repeatable, f.definition.timeout_s) == (True, DEFAULT_TIMEOUT_S)
    assert (f.definition.repeatable, f.definition.timeout_s) == (
        g.definition.repeatable,
        g.definition.timeout_s,
    )
    assert f.function.call({}, None).text == "x"


def test_a_decorator_with_a_name_in_place_of_a_function_is_refused(tmp_path: Path) -> None:
    source = """
        from handoff_queue import tool

        @tool("f")
        def f() -> str:
            'Says.'
            return 'x'
    """

    assert (
        "TypeError: @tool cannot mark a str; mark a function): correct the file, or take it out"
        in refusal(tmp_path, source=source)
    )


def test_the_error_about_a_number_in_place_of_a_function_has_the_right_article() -> None:
    with pytest.raises(TypeError, match=r"^@tool cannot mark an int; mark a function$"):
        tool(3)  # type: ignore[call-overload]


def test_a_tool_can_set_the_timeout_of_its_calls(tmp_path: Path) -> None:
    source = "def f() -> str:\n    'Says.'\n    return ''\n"

    assert definitions(tmp_path, source=source)["f"].timeout_s == DEFAULT_TIMEOUT_S
    assert definitions(tmp_path, source=source + "f.timeout_s = 2\n")["f"].timeout_s == 2


@pytest.mark.parametrize(
    "timeout_s", ["0", "-1", "3_601", "float('nan')", "float('inf')", "'5'", "True"]
)
def test_a_timeout_out_of_its_bounds_is_refused(tmp_path: Path, timeout_s: str) -> None:
    source = f"def f() -> str:\n    'Says.'\n    return ''\nf.timeout_s = {timeout_s}\n"

    assert (
        refusal(tmp_path, t=source)
        == f"{tmp_path}/t.py: tool f: ValueError: its timeout_s must be a number of seconds above 0"
        " and up to 3600"
    )


def test_models_bytes_and_images_reach_the_worker(tools: dict[str, Tool]) -> None:
    assert ToolHarness().call(tools["order"]) == '{"row": {"price": 1.5}}'
    assert ToolHarness().call(tools["note"]) == "café"
    chart = ToolHarness().output(tools["chart"], data=base64.b64encode(PNG).decode())
    assert chart == ToolOutput('["sales", "[image 1]"]', (Image("image/png", PNG),))


def test_a_missing_secret_is_named_and_nothing_is_run(
    tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEATHER_TOKEN", raising=False)

    text = ToolHarness().failure(tools["report"], city="Oslo")

    assert text == "report is not set up: the worker's environment lacks WEATHER_TOKEN"


def test_a_secrets_value_never_leaves_the_tool(
    tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_TOKEN", 'canary-"7')
    report = tools["report"]

    assert ToolHarness().call(report, city="Oslo") == "reported with [WEATHER_TOKEN]"
    assert ToolHarness().failure(report, city="nowhere") == "refused with [WEATHER_TOKEN]"


def test_a_secret_inside_json_is_redacted(
    tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", 'ca"nary')

    assert ToolHarness().call(tools["leak"]) == '{"it": "[TOKEN]"}'


def test_the_model_gets_the_type_and_no_text_of_a_tools_error(tools: dict[str, Tool]) -> None:
    def message(**arguments: object) -> str:
        call = {"type": "tool_use", "id": "t", "name": "fetch", "input": arguments}
        return run_tool(call, tools, ToolHarness().context).text

    assert message(a=1) == "fetch failed with OSError; try other arguments, or do without"
    assert message(a=0) == "give an a above 0"
    assert message(a="x").startswith("fetch: bad arguments at $.a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:\n", "/t.py:1: cannot be loaded (SyntaxError"),
        ("x = 1\nimport no_such_module\n", "/t.py:2: cannot be loaded (ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "/t.py:1: cannot be loaded (SystemExit"),
        ("import os\nx = os.environ['NONE']\n", "read the variable in the function, and name it"),
        ("def f(x: int) -> str:\n    return ''\n", "needs a docstring"),
        ("def f(x) -> str:\n    'Says.'\n    return ''\n", "parameter x needs a type"),
        ("def f(x: Nonsense) -> str:\n    'Says.'\n    return ''\n", "t.py"),
        ("def f() -> object:\n    'Says.'\n    yield ''\n", "not be a generator"),
        ("def f(größe: int) -> str:\n    'Says.'\n    return ''\n", "rename parameter 'größe'"),
        (
            "def f() -> str:\n    'Says.'\n    return ''\nf.secrets = [3]\n",
            "names of environment variables",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_error(tmp_path: Path, text: str, reason: str) -> None:
    message = refusal(tmp_path, t=text)

    assert message.startswith(f"{tmp_path}/t.py")
    assert reason in message


def test_functions_behind_decorators_and_marked_callables_are_tools(
    tools: dict[str, Tool],
) -> None:
    texts = {
        "asked": "tea in default",
        "cached": "tea in any",
        "of_class": "tea in _Shop",
        "price_eu": "tea in eu",
        "price_here": "tea in here",
    }

    assert {name: ToolHarness().call(tools[name], item="tea") for name in texts} == texts
    assert "left_alone" not in tools
    assert "same" not in tools


@pytest.mark.parametrize("name", [*BUILT_IN, READ_RESULT])
def test_a_tool_with_the_name_of_a_built_in_tool_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = a_tool(name, lambda _arguments: "")
    hosted = HostedTools((("things", (tool,)),))
    monkeypatch.setattr(registry, "start_user_tools", lambda _settings: hosted)

    with pytest.raises(InvalidTool, match="is the name of a built-in tool"):
        build_registry(Settings(), DocumentIndex(tmp_path))


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    text = "def same() -> str:\n    'Says.'\n    return ''\n"

    assert (
        refusal(tmp_path, a=text, b=text)
        == f"{tmp_path}/b.py: there is a tool same in {tmp_path}/a.py already: rename one"
    )


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "no such folder of tools" in refusal(tmp_path / "nowhere")


def test_files_with_a_leading_underscore_are_ignored(tmp_path: Path) -> None:
    text = "def same() -> str:\n    'Says.'\n    return ''\n"

    assert set(definitions(tmp_path, _draft="raise RuntimeError", a=text)) == {"same"}


def test_a_folder_without_a_file_of_tools_is_refused(tmp_path: Path) -> None:
    assert "has no file of tools" in refusal(tmp_path, _draft="raise RuntimeError")


def test_an_installed_package_offers_a_module_of_tools_or_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "office_tools.py").write_text(WEATHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = EntryPoint("all", "office_tools", "handoff.tools")
    function = EntryPoint("one", "office_tools:weather", "handoff.tools")

    assert [tool.name for tool in load_installed_tools([module])] == ["report", "weather"]
    assert [tool.name for tool in load_installed_tools([function])] == ["weather"]


def test_an_installed_package_that_does_not_load_is_named() -> None:
    with pytest.raises(InvalidTool, match=r"gone: cannot be loaded .*: correct its package,"):
        load_installed_tools([EntryPoint("gone", "no_such_module", "handoff.tools")])


def test_a_pipe_is_not_a_tool_and_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")

    assert (
        refusal(tmp_path) == f"{tmp_path}/pipe.py: is not a regular file; take it out of the folder"
    )


@pytest.mark.parametrize(
    "signature",
    ["größe: int", f"{'n' * 65}: int", "size: Annotated[int, Field(alias='filter[size]')]"],
    ids=["letters", "length", "alias"],
)
def test_a_parameter_name_that_the_provider_refuses_is_refused_with_file_and_name(
    tmp_path: Path, signature: str
) -> None:
    text = f'''
        from typing import Annotated
        from pydantic import Field
        def measure({signature}) -> str:
            """Measure a thing."""
            return "ok"
    '''
    message = refusal(tmp_path, sizes=text)
    assert message.startswith(f"{tmp_path}/sizes.py")
    assert "tool measure: rename parameter" in message


def test_a_name_inside_a_parameter_may_have_any_letters(tmp_path: Path) -> None:
    text = '''
        from pydantic import BaseModel
        class Thing(BaseModel):
            größe: int
        def measure(thing: Thing) -> str:
            """Measure a thing."""
            return "ok"
    '''
    assert "measure" in definitions(tmp_path, sizes=text)


def test_a_file_with_the_suffix_in_capitals_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "WEATHER.PY").write_text(WEATHER)

    assert [tool.name for tool in load_tools(tmp_path)] == ["report", "weather"]


DECLARED = """
    from handoff_queue.workers.tools.tool_decorator import tool

    @tool(reads="public", sends=("api.example.org", "*.example.net"))
    def rates() -> str:
        '''The rates.'''
        return "3"

    @tool(acts=True, sends="*")
    def mail(to: str) -> str:
        '''Send a mail.'''
        return "sent"

    def plain() -> str:
        '''A tool without marks.'''
        return "1"
"""


def test_a_tool_declares_its_reads_its_hosts_and_its_acts(tmp_path: Path) -> None:
    with hosted(write_tools(tmp_path / "tools", {"own": DECLARED})) as tools:
        rates, mail, plain = tools["rates"], tools["mail"], tools["plain"]

    assert (rates.reads, rates.acts, rates.sends) == (
        "public",
        False,
        ("api.example.org", "*.example.net"),
    )
    assert (mail.reads, mail.acts, mail.sends) == ("private", True, ("*",))
    assert (plain.reads, plain.acts, plain.sends) == ("private", False, ())
    assert mail.repeatable, "`acts` says nothing about a second run"
    assert (rates.result_origins, plain.result_origins) == (("web",), ("tool plain",))


@pytest.mark.parametrize(
    ("marks", "fault"),
    [
        ("reads='secret'", "its reads must be 'private' or 'public'"),
        ("acts='no'", "its acts must be True or False"),
        ("sends=('https://a.example/x',)", "its sends must be hosts such as example.org"),
        ("sends=(3,)", "its sends must be hosts such as example.org, not 3"),
        ("network='some'", "its network must be 'all', 'none' or a list of hosts"),
        ("network=()", "its network must be 'all', 'none' or a list of hosts"),
        ("network=('https://a.example/x',)", "its network must have hosts such as example.org"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_line(tmp_path: Path, marks: str, fault: str) -> None:
    text = DECLARED.replace('reads="public", sends=("api.example.org", "*.example.net")', marks)

    assert fault in refusal(tmp_path, own=text)
