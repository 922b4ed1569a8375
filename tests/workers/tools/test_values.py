"""The result of a user's tool reaches the model as text, JSON or an image, and never as the
`repr` of an object.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import pathlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

import imagesize
import pydantic
import pytest

from handoff_queue.shared.agent.tool import Tool, ToolFailed, ToolOutput
from handoff_queue.shared.agent.tool_return_values import MAX_IMAGES_A_RESULT
from handoff_queue.shared.types.errors import InvalidTool
from tests.doubles.function_tools import tool_from
from tests.workers.tools.contexts import ToolHarness

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


class Order(pydantic.BaseModel):
    price: float = math.nan
    since: datetime.date = datetime.date(2026, 1, 2)


@dataclasses.dataclass
class Row:
    order: Order
    path: pathlib.Path = pathlib.Path("a/b")


class Colour(enum.Enum):
    RED = "red"


class Words(str, enum.Enum):  # noqa: UP042 - the older form, which users still write
    YES = "yes"


class Scalar:
    """Scalar with the method `tolist`, as in numpy."""

    def tolist(self) -> int:
        return 7


class Pair(NamedTuple):
    a: int
    b: int


class Opaque:
    """Object that cannot be written as JSON."""


class WithText:
    def __str__(self) -> str:
        return "spoken"


class Picture:
    """Image with the interface of Pillow."""

    size, mode = (1, 1), "RGB"

    def save(self, file: Any, format: str) -> None:  # noqa: A002 - Pillow's own signature
        assert format == "PNG"
        file.write(PNG)


def rows_of_sqlite() -> list[sqlite3.Row]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute("select 1 as id, 'x' as name").fetchall()


def tool_returning(value: object) -> Tool:
    def give() -> object:
        """Give it."""
        return value

    return tool_from(give)


def output_of(value: object) -> ToolOutput:
    return ToolHarness().output(tool_returning(value))


def failure(value: object) -> str:
    return ToolHarness().failure(tool_returning(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (Words.YES, "yes"),
        (Colour.RED, "red"),
        (b"caf\xc3\xa9", "café"),
        (WithText(), '"spoken"'),
        (None, "null"),
        (math.nan, "null"),
        ({"a": [math.inf, -math.inf]}, '{"a": [null, null]}'),
        (Order(), '{"price": null, "since": "2026-01-02"}'),
        (Row(Order(price=1)), '{"order": {"price": 1.0, "since": "2026-01-02"}, "path": "a/b"}'),
        ([decimal.Decimal("1.50"), uuid.UUID(int=1)], f'["1.50", "{uuid.UUID(int=1)}"]'),
        (
            {"at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
            '{"at": "2026-01-02T00:00:00Z"}',
        ),
        ({"for": datetime.timedelta(hours=1)}, '{"for": "PT1H"}'),
        ({"s": {1}, "f": frozenset([2]), "r": range(2)}, '{"s": [1], "f": [2], "r": [0, 1]}'),
        ([Scalar(), {"deep": (Colour.RED, b"x")}], '[7, {"deep": ["red", "x"]}]'),
        ({Colour.RED: 1, 2: 3}, '{"red": 1, "2": 3}'),
        (Pair(1, 2), "[1, 2]"),
        (["half \ud800"], '["half \ufffd"]'),
        ({"a": 1}.values(), "[1]"),
        (rows_of_sqlite(), '[{"id": 1, "name": "x"}]'),
    ],
)
def test_a_value_is_text_or_json(value: object, text: str) -> None:
    output = output_of(value)

    assert (output.text, output.images) == (text, ())
    assert "NaN" not in output.text


def recursive_list() -> list[object]:
    value: list[object] = []
    value += [value, value]
    return value


async def coroutine() -> str:
    return "later"


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Opaque(), "returned an Opaque, which cannot be written as JSON"),
        ([Opaque()], "returned an Opaque, which cannot be written as JSON"),
        (len, "cannot be written as JSON"),
        (recursive_list(), "cannot be written as JSON"),
        (b"\xff\x00", "returned 2 bytes that are neither UTF-8 text nor a PNG"),
        (generator(), "returned a generator"),
        ([map(str, [1])], "returned a map"),
        (PNG[:12], "the image/png that it returned is broken"),
        ([PNG] * (MAX_IMAGES_A_RESULT + 1), f"at most {MAX_IMAGES_A_RESULT} can be shown"),
    ],
)
def test_a_value_that_cannot_be_shown_is_a_failed_call(value: object, reason: str) -> None:
    text = failure(value)

    assert reason in text
    assert " object at 0x" not in text


def test_a_coroutine_inside_of_another_value_is_a_failed_call() -> None:
    def give() -> object:
        """Give it."""
        return [coroutine()]

    assert "returned a coroutine inside of another value" in ToolHarness().failure(tool_from(give))


def test_an_async_generator_is_a_failed_call() -> None:
    def give() -> object:
        """Give it."""

        async def numbers() -> Any:
            yield 1

        return numbers()

    assert "returned an async_generator" in ToolHarness().failure(tool_from(give))


@pytest.mark.parametrize("value", [PNG, bytearray(PNG), memoryview(PNG), Picture(), GIF])
def test_an_image_value_is_shown_as_an_image(value: object) -> None:
    output = output_of(value)

    assert output.text == "[image 1]"
    assert [imagesize.get(BytesIO(image.data)) for image in output.images] == [(1, 1)]


def test_an_image_in_a_container_is_shown_next_to_the_json() -> None:
    output = output_of({"chart": PNG, "of": [Picture(), "sales"]})

    assert output.text == '{"chart": "[image 1]", "of": ["[image 2]", "sales"]}'
    assert [image.media_type for image in output.images] == ["image/png", "image/png"]


def test_an_image_that_is_larger_than_the_api_takes_is_a_failed_call() -> None:
    wide = PNG[:16] + (8_001).to_bytes(4, "big") + PNG[20:]

    assert "8001 x 1 pixels" in failure(wide)
    assert "at most 8000 pixels" in failure(PNG + bytes(3_750_000))


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: object, **named: object) -> object:
        return function(*arguments, **named)

    return wrapper


async def ask(city: str) -> dict[str, str]:
    """Ask for it."""
    await asyncio.to_thread(str, city)
    return {"city": city}


class Shop:
    """Has tools of all kinds."""

    async def __call__(self, city: str) -> dict[str, str]:
        """Ask for it."""
        return await ask(city)

    @classmethod
    async def of_class(cls, city: str) -> dict[str, str]:
        """Ask for it."""
        return await ask(city)

    async def of_object(self, city: str) -> dict[str, str]:
        """Ask for it."""
        return await ask(city)


@pytest.mark.parametrize(
    "function",
    [
        ask,
        wrapped(ask),
        wrapped(wrapped(ask)),
        Shop.of_class,
        Shop().of_object,
        functools.partial(ask),
    ],
    ids=["plain", "wrapped", "wrapped twice", "classmethod", "method", "partial"],
)
def test_an_async_tool_is_run_to_its_end(function: Callable[..., Any]) -> None:
    assert ToolHarness().call(tool_from(function, name="ask"), city="Oslo") == '{"city": "Oslo"}'


def test_an_object_that_can_be_called_is_a_tool() -> None:
    assert ToolHarness().call(tool_from(Shop(), name="ask"), city="Oslo") == '{"city": "Oslo"}'


def test_the_model_does_not_see_the_bound_arguments_of_a_partial() -> None:
    def price(item: str, region: str) -> str:
        """The price of an item."""
        return f"{item} in {region}"

    tool = tool_from(functools.partial(price, region="eu"), name="price_eu")

    assert list(tool.input_schema["properties"]) == ["item"]
    assert ToolHarness().call(tool, item="tea") == "tea in eu"


def test_a_generator_is_refused_at_load() -> None:
    for function in (generator, functools.partial(generator)):
        with pytest.raises(InvalidTool, match="not be a generator"):
            tool_from(function, name="generated")


def test_a_failing_tool_reports_its_own_message() -> None:
    def give() -> str:
        """Give it."""
        raise ToolFailed("not today")

    assert ToolHarness().failure(tool_from(give)) == "not today"
