"""Images that a tool returned: their media types and size limits."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import imagesize

from handoff_queue.shared.agent.tool import Image, ToolFailed

MOST_BYTES = 3_750_000
"""Bytes of one image. The Messages API takes 5 MB of base64, and base64 is a third longer."""
MOST_PIXELS = 8_000
"""Pixels of each side, a limit of the Messages API."""
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def media_type_of(data: bytes) -> str | None:
    """Return the media type by the first bytes: PNG, JPEG, GIF or WebP. None: the bytes are no
    such image.
    """
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    if is_webp:
        return "image/webp"
    return None


def image_of(data: bytes) -> Image | None:
    """Return the bytes as an image, or None if `media_type_of` knows no such image.

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
    return Image(media_type, data)


def encode_image(value: Any) -> bytes | None:
    """Return an object of an image library as PNG bytes, or None if it is no such object.

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
