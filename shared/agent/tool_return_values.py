"""Conversion of a tool's return value, text or images, into the output that the model sees."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Set, ValuesView
from enum import Enum
from io import BytesIO
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from handoff_queue.shared.agent.tool import Image, ToolFailed, ToolOutput
from handoff_queue.shared.text.unicode_text import replace_all_lone_surrogates
from handoff_queue.shared.text.word_forms import with_article

MAX_BYTES = 3_750_000
"""Bytes of one image. The Messages API takes 5 MB of base64, and base64 is a third longer."""
MAX_PIXELS = 8_000
"""Pixels of each side, a limit of the Messages API."""
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def find_media_type(data: bytes) -> str | None:
    """Return the media type by the first bytes: PNG, JPEG, GIF or WebP. None: the bytes are not
    such an image.
    """
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    if is_webp:
        return "image/webp"
    return None


def parse_image(data: bytes) -> Image | None:
    """Return the bytes as an image, or None if `find_media_type` knows no such image.

    Raises:
        ToolFailed: the image is broken, or larger than the Messages API takes.
    """
    media_type = find_media_type(data)
    if media_type is None:
        return None
    import imagesize  # few tools return an image, and each tool host would import it

    try:
        width, height = imagesize.get(BytesIO(data))
    except Exception as error:
        raise ToolFailed(f"the {media_type} that it returned is broken") from error
    if width <= 0 or height <= 0:
        raise ToolFailed(f"the {media_type} that it returned is broken")
    if len(data) > MAX_BYTES or max(width, height) > MAX_PIXELS:
        raise ToolFailed(
            f"the image that it returned has {width} x {height} pixels and {len(data):,} bytes; "
            f"at most {MAX_PIXELS} pixels a side and {MAX_BYTES:,} bytes can be shown"
        )
    return Image(media_type, data)


def encode_image(value: Any) -> bytes | None:
    """Return an object of an image library as PNG bytes, or None if it is not such an object.

    Pillow's images and figures for notebooks have the method `_repr_png_`. Other objects have
    Pillow's `save(file, format=...)`, `size` and `mode`.
    """
    if isinstance(value, type):
        return None
    data = None
    if callable(getattr(value, "_repr_png_", None)):
        data = value._repr_png_()
    has_save = callable(getattr(value, "save", None))
    is_like_pillow = has_save and hasattr(value, "size") and hasattr(value, "mode")
    if data is None and is_like_pillow:
        buffer = BytesIO()
        value.save(buffer, format="PNG")
        data = buffer.getvalue()
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    return None


MAX_IMAGES_A_RESULT = 4
"""Images of one result."""

_PLAIN = ("_asdict", "to_dict", "tolist")
"""Methods that return plain values: of SQLAlchemy's rows, of pandas' tables, and of numpy's
arrays and scalars.
"""


def convert_output(name: str, value: Any) -> ToolOutput:
    """Convert a tool's return value into the text and the images that the model sees. An
    awaitable is run to its end first.

    Args:
        name: name of the tool, for error messages.
        value: return value of the tool.

    Raises:
        ToolFailed: the value cannot be shown. The message tells the model the reason.
    """
    while inspect.isawaitable(value):
        import asyncio  # few tools return an awaitable, and each tool host would import it

        value = asyncio.run(_await_value(value))
    reading = _Reading(name)
    plain = reading.convert(value)
    if len(reading.images) > MAX_IMAGES_A_RESULT:
        raise ToolFailed(
            f"{name} returned {len(reading.images)} images;"
            f" at most {MAX_IMAGES_A_RESULT} can be shown"
        )
    images = tuple(reading.images)
    if isinstance(plain, str):
        return ToolOutput(plain, images)
    return ToolOutput(_encode_json(name, plain, reading.convert_unknown), images)


def _encode_json(name: str, value: Any, fallback: Callable[[Any], Any]) -> str:
    """Return a tool's return value as JSON. `fallback` converts values of unknown types.

    Raises:
        ToolFailed: the value cannot be written as JSON.
    """
    try:
        plain = to_jsonable_python(value, inf_nan_mode="null", fallback=fallback)
        return json.dumps(
            replace_all_lone_surrogates(_replace_non_finite(plain)),
            ensure_ascii=False,
            allow_nan=False,
        )
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ToolFailed(f"{name} returned a value that cannot be written as JSON") from error


def _replace_non_finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinities. Pydantic models may let these
    through.
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, list):
        return [_replace_non_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    return value


def _find_plain_method(value: Any) -> Callable[[], Any] | None:
    """Return a function that converts the object to plain values, or None if it has no such
    method.
    """
    for name in _PLAIN:
        method = getattr(value, name, None)
        if callable(method):
            return cast(Callable[[], Any], method)
    keys = getattr(value, "keys", None)
    if callable(keys) and hasattr(type(value), "__getitem__"):  # such as a row of sqlite3
        return lambda: {key: value[key] for key in keys()}
    return None


class _Reading:
    """Converts return values to plain values, and collects their images."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.images: list[Image] = []

    def convert(self, value: Any, inside: frozenset[int] = frozenset()) -> Any:
        """Return the value with its bytes as text, its images as "[image 1]", and its
        enumeration members as their values. This includes the items of plain containers.
        Pydantic converts all other values later.

        Args:
            inside: ids of the containers around the value. A container that contains itself is left
                to pydantic, which refuses it.

        Raises:
            ToolFailed: the value is an iterator, or bytes that are neither text nor an image.
        """
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, Iterator) or inspect.isasyncgen(value):
            raise ToolFailed(
                f"{self._name} returned {_describe_type(value)}, which has not produced its items;"
                " it must return a list"
            )
        is_bytes = isinstance(value, bytes | bytearray | memoryview)
        data = bytes(value) if is_bytes else encode_image(value)
        if data is not None:
            return self._decode_bytes(data)
        if id(value) in inside:
            return value
        within = inside | {id(value)}
        if type(value) in (list, tuple, set, frozenset):
            return [self.convert(item, within) for item in value]
        if type(value) is dict:
            return {key: self.convert(item, within) for key, item in value.items()}
        return value

    def _decode_bytes(self, data: bytes) -> str:
        """Return the bytes as UTF-8 text. Collect an image, and return its label."""
        image = parse_image(data)
        if image is not None:
            self.images.append(image)
            return f"[image {len(self.images)}]"
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolFailed(
                f"{self._name} returned {len(data):,} bytes that are neither UTF-8 text nor a PNG, "
                "JPEG, GIF or WebP image"
            ) from None

    def convert_unknown(self, value: Any) -> Any:
        """Convert a value that pydantic does not know into a value that it may know.

        Raises:
            ToolFailed: there is no such conversion.
        """
        if inspect.isawaitable(value):
            getattr(value, "close", lambda: None)()
            raise ToolFailed(
                f"{self._name} returned {_describe_type(value)} inside of another value; it must"
                " await it"
            )
        plain = self.convert(value)
        if plain is not value:
            return plain
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Set | range | ValuesView):
            return list(value)
        fields = getattr(type(value), "__attrs_attrs__", None)
        if fields is not None:
            by_name: dict[Any, Any] = {}
            for field in fields:
                by_name[field.name] = getattr(value, field.name)
            return by_name
        convert = _find_plain_method(value)
        if convert is not None:
            return convert()
        has_text = any("__str__" in vars(kind) for kind in type(value).__mro__[:-1])
        if has_text and not callable(value):
            return str(value)
        raise ToolFailed(
            f"{self._name} returned {_describe_type(value)}, which cannot be written as JSON"
        )


def _describe_type(value: object) -> str:
    """Return the type of a value in words, such as `an int`."""
    return with_article(type(value).__name__)


async def _await_value(value: Any) -> Any:
    return await value
