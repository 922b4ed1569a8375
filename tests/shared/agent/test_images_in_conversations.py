"""Tool results may hold images, within the limits of a conversation."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.agent.conversation import (
    MAX_IMAGE_CHARS,
    MAX_IMAGES_A_REQUEST,
    NO_ROOM_FOR_IMAGE,
    Conversation,
)
from handoff_queue.shared.types.checkpoints import ObservedImage, ToolObserved, checkpoint_adapter


def result(*images: ObservedImage) -> ToolObserved:
    return ToolObserved(tool_use_id="t1", text="a chart", images=images)


def image(chars: int = 4) -> ObservedImage:
    return ObservedImage(media_type="image/png", data="A" * chars)


def conversation(*results: ToolObserved) -> Conversation:
    return Conversation({"role": "user", "content": [{"type": "text", "text": "Go."}]}, results)


def test_an_image_block_follows_the_text_of_its_result_also_after_storage() -> None:
    stored = checkpoint_adapter.validate_json(result(image()).to_json())
    assert isinstance(stored, ToolObserved)

    block: dict[str, Any] = conversation(stored).messages[-1]["content"][-1]

    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert block["content"] == [
        {"type": "text", "text": "a chart"},
        {"type": "image", "source": source},
    ]


def test_a_conversation_has_room_for_a_fixed_number_of_images() -> None:
    full = conversation(result(*[image()] * (MAX_IMAGES_A_REQUEST - 1)))

    kept = full.with_room_for(result(image(), image()))

    assert kept.images == (image(),)
    assert kept.text == f"a chart\n{NO_ROOM_FOR_IMAGE}"


def test_a_conversation_has_room_for_a_fixed_size_of_images() -> None:
    nearly_full = conversation(result(image(MAX_IMAGE_CHARS - 4)))

    assert nearly_full.with_room_for(result(image())) == result(image())
    assert nearly_full.with_room_for(result(image(8))).images is None
