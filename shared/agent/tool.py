"""Tools: their parameters, and the values and images that they return."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set, ValuesView
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from io import BytesIO
from typing import Any, cast

import imagesize
from pydantic_core import PydanticSerializationError, to_jsonable_python

from handoff_queue.shared.types.characters import all_in_whole_characters
from handoff_queue.shared.types.errors import HandoffError, InvalidTool
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_events import DEFAULT_TENANT

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The API answers 400 to a request with any other name: "Property keys should match pattern
...". It checks top-level names only.
"""


def check_parameter_names(tool: str, schema: Mapping[str, Any]) -> None:
    """Raise InvalidTool if the provider would refuse every request with this tool because of a
    parameter's name.
    """
    for name in schema.get("properties", {}):
        if not _NAME.fullmatch(name):
            raise InvalidTool(
                f"tool {tool}: rename parameter {name[:80]!r}: the provider takes 1 to 64 of the characters "
                "a-z, A-Z, 0-9, '_', '.' and '-'"
            )


class ToolFailed(HandoffError):
    """What a tool raises to tell the model, in one line, what went wrong and what to do
    instead. An observation, not an error.
    """


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a user's tool may know of the call that it serves.

    The worker fills in a parameter of this type; the model never sees it.
    """

    tenant: str
    job_id: str
    handoff_id: str
    step_id: str
    """The step of the job's plan that the handoff is an attempt at."""
    attempt: int
    """1 for the first attempt at the step."""
    deadline: datetime
    """When the handoff's time is over, in UTC."""
    idempotency_key: str
    """64 hexadecimal digits. The same each time this call is run, also after its worker was
    killed; another one for any other call.
    """


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that a tool returned."""

    media_type: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returned, as the model is shown it."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may know about who calls it."""

    job_id: JobId
    handoff_id: HandoffId
    manifest: Manifest
    """The job's documents."""
    text_of: Callable[[str], str]
    """The extracted text of a document by digest (out of the store, cached).  Raises: ToolFailed.
    """
    keep_document: Callable[[str, str, str], Document]
    """(source, media_type, text) -> the document, stored in the store so that it can be cited
    like any other.
    """
    remaining_s: Callable[[], float]
    """Seconds until the handoff's deadline."""
    fetched: Callable[[], tuple[Document, ...]] = tuple
    """Pages that were fetched for this job: documents like any other."""
    call_id: str = ""
    """The `tool_use` id of the call that runs."""
    note_result: Callable[[str, str], None] = lambda _source, _text: None
    """(source, text): let the answer of this handoff cite the result of a tool."""
    tenant: Callable[[], str] = lambda: DEFAULT_TENANT
    """The tenant of the job (out of the store).  Raises: StoreError."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. Its result is untrusted text: data for the model, never instructions to us."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], str | ToolOutput] | None
    """None: a server-side tool that the provider runs; `server_param` is what is sent."""
    server_param: Mapping[str, Any] | None = None
    repeatable: bool = True
    """Safe to run again after a crash. One that isn't is not repeated, and the model is told."""
    is_source: bool = False
    """Whether an answer may cite its results: those of a user's tool, not those of a search in
    documents.
    """
    timeout_s: float | None = None
    """After so many seconds a call has failed, and nobody waits for it any more. None: only
    the handoff's own limit holds.
    """


MOST_BYTES = 3_750_000
"""Of one image. The Messages API takes 5 MB of base64, which is a third longer."""
MOST_PIXELS = 8_000
"""Of each side, by the Messages API."""
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def media_type_of(data: bytes) -> str | None:
    """Return the media type of an image that the Messages API takes, by its first bytes; None:
    it is none.
    """
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return "image/webp" if is_webp else None


def image_of(data: bytes) -> Image | None:
    """Return these bytes as an image; None: they are none of the four kinds that the Messages
    API takes.

    Raises:
        ToolFailed: the image is broken, or larger than the Messages API takes.
    """
    media_type = media_type_of(data)
    if media_type is None:
        return None
    try:
        width, height = imagesize.get(BytesIO(data))
    except Exception as error:
        raise ToolFailed(f"the {media_type} that it returned is broken") from error
    if width <= 0 or height <= 0:
        raise ToolFailed(f"the {media_type} that it returned is broken")
    if len(data) > MOST_BYTES or max(width, height) > MOST_PIXELS:
        raise ToolFailed(
            f"the image that it returned has {width} x {height} pixels and {len(data):,} bytes; "
            f"at most {MOST_PIXELS} pixels a side and {MOST_BYTES:,} bytes can be shown"
        )
    return Image(media_type, data, width, height)


def encoded(value: Any) -> bytes | None:
    """Return the image that an object of an image library is, as PNG; None: it is no such object.

    Pillow's images, and what notebooks can show, have `_repr_png_`. Others have Pillow's
    `save(file, format=...)`, `size` and `mode`.
    """
    if isinstance(value, type):
        return None
    data = value._repr_png_() if callable(getattr(value, "_repr_png_", None)) else None
    is_like_pillow = callable(getattr(value, "save", None)) and all(
        hasattr(value, name) for name in ("size", "mode")
    )
    if data is None and is_like_pillow:
        buffer = BytesIO()
        value.save(buffer, format="PNG")
        data = buffer.getvalue()
    return bytes(data) if isinstance(data, bytes | bytearray) else None


MOST_IMAGES = 4
"""Of one result."""
_PLAIN = ("_asdict", "to_dict", "tolist")
"""Methods that return plain values: of SQLAlchemy's rows, of pandas' tables, of numpy's arrays
and scalars.
"""


def output_of(name: str, value: Any) -> ToolOutput:
    """Return what the tool called `name` returned, as the model is shown it. An awaitable is
    run to its end first.

    Raises:
        ToolFailed: the value cannot be shown, for a reason that the model is told.
    """
    while inspect.isawaitable(value):
        value = asyncio.run(_awaited(value))
    reading = _Reading(name)
    plain = reading.plain(value)
    if len(reading.images) > MOST_IMAGES:
        raise ToolFailed(
            f"{name} returned {len(reading.images)} images; at most {MOST_IMAGES} can be shown"
        )
    images = tuple(reading.images)
    if isinstance(plain, str):
        return ToolOutput(plain, images)
    return ToolOutput(_json(name, plain, reading.fallback), images)


async def _awaited(value: Any) -> Any:
    return await value


def _json(name: str, value: Any, fallback: Callable[[Any], Any]) -> str:
    try:
        plain = to_jsonable_python(value, inf_nan_mode="null", fallback=fallback)
        return json.dumps(
            all_in_whole_characters(_finite(plain)), ensure_ascii=False, allow_nan=False
        )
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ToolFailed(f"{name} returned a value that cannot be written as JSON") from error


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by null, also those that a pydantic model has let through."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _plain_method(value: Any) -> Callable[[], Any] | None:
    """Return what makes plain values of an object. None: the object has no such method."""
    for name in _PLAIN:
        if callable(method := getattr(value, name, None)):
            return cast(Callable[[], Any], method)
    keys = getattr(value, "keys", None)
    if callable(keys) and hasattr(type(value), "__getitem__"):  # such as a row of sqlite3
        return lambda: {key: value[key] for key in keys()}
    return None


class _Reading:
    """Makes values plain, and collects the images among them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.images: list[Image] = []

    def plain(self, value: Any, inside: frozenset[int] = frozenset()) -> Any:
        """Return the value with images, bytes and lazy values in its containers replaced.
        Other values are left to pydantic.

        `inside`: the ids of the containers that the value is in. One that holds itself is left
        to pydantic, which refuses it.
        """
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, Iterator) or inspect.isasyncgen(value):
            raise ToolFailed(
                f"{self._name} returned a {type(value).__name__}, whose items nobody has asked for; "
                "it must return a list"
            )
        if isinstance(value, bytes | bytearray | memoryview):
            value = self._of_bytes(bytes(value))
        elif (picture := encoded(value)) is not None:
            value = self._of_bytes(picture)
        elif id(value) not in inside:
            within = inside | {id(value)}
            if type(value) in (list, tuple, set, frozenset):
                value = [self.plain(item, within) for item in value]
            elif type(value) is dict:
                value = {key: self.plain(item, within) for key, item in value.items()}
        return value

    def _of_bytes(self, data: bytes) -> str:
        image = image_of(data)
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

    def fallback(self, value: Any) -> Any:
        """Return a value that pydantic does not know as one that it may know."""
        if inspect.isawaitable(value):
            getattr(value, "close", lambda: None)()
            raise ToolFailed(
                f"{self._name} returned a {type(value).__name__} inside of another value; "
                "it must await it"
            )
        if (plain := self.plain(value)) is not value:
            return plain
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Set | range | ValuesView):
            return list(value)
        if (fields := getattr(type(value), "__attrs_attrs__", None)) is not None:
            return {field.name: getattr(value, field.name) for field in fields}
        if (plainly := _plain_method(value)) is not None:
            return plainly()
        has_text = any("__str__" in vars(kind) for kind in type(value).__mro__[:-1])
        if has_text and not callable(value):
            return str(value)
        raise ToolFailed(
            f"{self._name} returned a {type(value).__name__}, which cannot be written as JSON"
        )
