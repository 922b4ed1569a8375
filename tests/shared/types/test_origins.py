import pytest
from pydantic import TypeAdapter, ValidationError

from handoff_queue.shared.types.origins import (
    MAX_ORIGINS,
    UNKNOWN,
    Origins,
    build_mcp_origin,
    build_tool_origin,
    get_origins,
    is_private,
    is_untrusted,
    union,
)

ORIGINS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Origins)


@pytest.mark.parametrize(
    "origin", ["user", "document", "web", "model", "tool crm", "mcp weather-1"]
)
def test_an_origin_is_one_of_six_kinds(origin: str) -> None:
    assert ORIGINS.validate_python((origin,)) == (origin,)


@pytest.mark.parametrize("origin", ["", "admin", "tool", "tool ", "tool a b", "user x", "web\n"])
def test_other_texts_are_not_an_origin(origin: str) -> None:
    with pytest.raises(ValidationError):
        ORIGINS.validate_python((origin,))


def test_a_union_is_sorted_and_names_each_origin_once() -> None:
    assert union(("web", "user"), ["user", "document"]) == ("document", "user", "web")


def test_a_union_of_many_tools_keeps_their_kind() -> None:
    many = union([build_tool_origin(f"t{number}") for number in range(MAX_ORIGINS + 1)], ["user"])
    assert many == ("tool other", "user")
    assert is_private(many)


def test_documents_tools_and_servers_are_private_and_the_web_is_not() -> None:
    for origin in ("document", build_tool_origin("crm"), build_mcp_origin("files")):
        assert is_private([origin])
        assert is_untrusted([origin])
    assert is_untrusted(["web"])
    assert not is_private(["web"])
    assert not is_untrusted(["user", "model"])
    assert not is_private(["user", "model"])


def test_one_tool_can_be_named() -> None:
    assert is_private(["tool crm"], ["tool crm"])
    assert not is_private(["tool rates"], ["tool crm"])


def test_a_payload_without_origins_counts_as_private_and_untrusted() -> None:
    assert get_origins(None) == UNKNOWN
    assert is_private(get_origins(None))
    assert is_untrusted(get_origins(None))
    assert get_origins(()) == ()
