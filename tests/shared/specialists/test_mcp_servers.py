"""The field `mcp` of a specialist's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.specialists import load_servers, load_specialists, read_specialist
from handoff_queue.shared.specialists.mcp_servers import (
    build_tool_name,
    compute_listing_digest,
    get_listing_file,
    with_digests,
)
from handoff_queue.shared.specialists.tool_grants import grant_spec
from handoff_queue.shared.types.errors import InvalidSpecialist

ENTRY: dict[str, Any] = {
    "name": "forecast",
    "description": "The weather.",
    "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
LISTING = {"forecast": ENTRY}
DIGEST = compute_listing_digest(LISTING)
SERVER = f"""weather:
    command: [weather-server]
    tools: [forecast]
    digest: {DIGEST}"""


def write(folder: Path, servers: str, listings: object = None, name: str = "meteorologist") -> Path:
    """Write a specialist with these servers, and the listings that a person has accepted."""
    file = folder / f"{name}.md"
    file.write_text(
        f"---\nname: {name}\ndescription: Answers questions about the weather.\n"
        f"tools: [now]\nmcp:\n  {servers}\n---\nYou look the weather up before you answer.\n"
    )
    if listings is None:
        listings = {"weather": LISTING}
    get_listing_file(file).write_text(
        listings if isinstance(listings, str) else json.dumps(listings)
    )
    return file


def test_the_accepted_tools_are_tools_of_the_specialist(tmp_path: Path) -> None:
    spec = read_specialist(write(tmp_path, SERVER), tools={"now"})
    (server,) = load_servers(tmp_path)

    assert spec.tools == ("now", "weather__forecast")
    assert server.tools == {"weather__forecast": "forecast"}
    assert server.listing == LISTING
    assert "weather-server" not in spec.to_json(), "the command stays on the worker's machine"


def test_a_job_cannot_grant_a_tool_that_the_file_does_not_name(tmp_path: Path) -> None:
    own = read_specialist(write(tmp_path, SERVER))
    pinned = own.model_copy(update={"tools": (*own.tools, "weather__alert")})

    assert grant_spec(pinned, own).tools == own.tools


@pytest.mark.parametrize(
    ("servers", "listings"),
    [
        (SERVER.replace(DIGEST, "sha256-0"), None),
        (SERVER.partition("\n    digest")[0], None),
        (SERVER, {}),
        (SERVER, {"weather": {"forecast": {**ENTRY, "description": "Other."}}}),
        (SERVER.replace("[forecast]", "[forecast, alert]"), None),
    ],
)
def test_tools_that_no_person_has_accepted_are_refused(
    servers: str, listings: object, tmp_path: Path
) -> None:
    file = write(tmp_path, servers, listings)

    with pytest.raises(InvalidSpecialist, match="no person has accepted these tools") as raised:
        read_specialist(file)
    assert "handoff specialists --accept-mcp" in str(raised.value)
    assert str(raised.value).startswith(f"{file}:5: mcp: weather: ")
    with pytest.raises(InvalidSpecialist, match="no person has accepted these tools"):
        load_servers(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weather": 1}', '{"weather": {"forecast": 1}}'])
def test_a_broken_file_of_listings_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecialist, match=r"meteorologist\.mcp\.json .* accept the tools"):
        read_specialist(write(tmp_path, SERVER, text))


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("[]", "must name servers"),
        ("Weather: {command: [a], tools: [b]}", "Weather: is not a name"),
        ("weather: {tools: [b]}", "needs either a command or a url"),
        ("weather: {command: [a], url: 'https://a.example', tools: [b]}", "needs either"),
        ("weather: {command: [a]}", "weather.tools: is missing"),
        ("weather: {command: [a], tools: []}", "weather.tools: "),
        ("weather: {command: [a], tools: [b], tool: c}", "did you mean tools?"),
        ("weather: {command: [a], tools: [b, b]}", "b is named twice"),
        ("weather: {command: [a], tools: [b.c, b/c]}", "is named twice"),
        (f"weather: {{command: [a], tools: [{'b' * 64}]}}", "has more than 64 characters"),
        ("weather: {command: [a], tools: [b], timeout_s: 0}", "weather.timeout_s: "),
        ("weather: {command: [a], tools: [b], timeout_s: 9999}", "weather.timeout_s: "),
        ("weather: {command: [a], tools: [b], env: ['A=b']}", "weather.env.0: "),
        ("weather: {command: [a], tools: [b], headers: {a: b}}", "headers belong to a url"),
        ("weather: {url: 'https://a.example', tools: [b], env: [A]}", "env belongs to a command"),
        ("weather: {url: 'ftp://a.example', tools: [b]}", "url: must begin with http"),
        ("weather: {url: 'https://u:p@a.example', tools: [b]}", "must hold no user"),
        (
            "weather: {url: 'http://a.example', headers: {A: '${B}'}, tools: [b]}",
            "must begin with https://",
        ),
        ("weather: {url: 2026-01-01, tools: [b]}", "must be text, numbers and lists"),
    ],
)
def test_a_fault_is_one_line_with_the_server(servers: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecialist) as raised:
        read_specialist(write(tmp_path, servers))

    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "array"},
        {"type": "object", "properties": {"a b": {}}},
        {"type": "object", "$ref": "x"},
    ],
)
def test_a_schema_that_no_model_can_use_is_refused(schema: object, tmp_path: Path) -> None:
    listing = {"forecast": {**ENTRY, "inputSchema": schema}}
    servers = SERVER.replace(DIGEST, compute_listing_digest(listing))

    with pytest.raises(InvalidSpecialist, match="forecast"):
        read_specialist(write(tmp_path, servers, {"weather": listing}))


def test_a_task_of_the_host_has_no_servers(tmp_path: Path) -> None:
    file = write(tmp_path, SERVER)
    file.write_text(file.read_text().replace("tools: [now]\n", "celery_task: shop.enrich\n"))

    with pytest.raises(InvalidSpecialist, match="mcp: has no effect with celery_task"):
        read_specialist(file)


def test_two_specialists_share_a_server_and_cannot_give_it_two_meanings(tmp_path: Path) -> None:
    write(tmp_path, SERVER)
    write(tmp_path, SERVER, name="sailor")
    assert len(load_servers(tmp_path)) == 2
    assert set(load_specialists(tmp_path)) == {"meteorologist", "sailor"}

    write(tmp_path, SERVER.replace("weather-server", "another"), name="sailor")
    with pytest.raises(InvalidSpecialist, match=r"sailor\.md: mcp: .* another server weather"):
        load_servers(tmp_path)


def test_a_specialist_of_a_later_folder_replaces_the_servers_of_the_earlier(
    tmp_path: Path,
) -> None:
    earlier, later = tmp_path / "a", tmp_path / "b"
    for folder in (earlier, later):
        folder.mkdir()
    write(earlier, SERVER)
    file = write(later, SERVER)
    file.write_text(file.read_text().replace("weather-server", "another"))
    (server,) = load_servers(earlier, later)

    assert server.config.command == ("another",)


@pytest.mark.parametrize(
    "servers",
    [
        SERVER,
        SERVER.partition("\n    digest")[0],
        "weather: {command: [weather-server], tools: [forecast]}",
        "weather: {digest: old, command: [weather-server], tools: [forecast]}",
        "weather:\n    # A comment.\n    tools: [forecast]  # one\n    command:\n      - a\n",
    ],
)
def test_a_digest_is_written_into_the_file_and_nothing_else_changes(
    servers: str, tmp_path: Path
) -> None:
    file = write(tmp_path, servers.replace(DIGEST, "old"))
    before = file.read_text()
    after = with_digests(before, {"weather": DIGEST})
    file.write_text(after)

    assert read_specialist(file).tools == ("now", "weather__forecast")
    assert with_digests(after, {"weather": DIGEST}) == after
    if "old" in before:
        assert after == before.replace("old", DIGEST)
    else:
        added = f"digest: {DIGEST}"
        assert after.replace(f"{added}\n    ", "").replace(f"{added}, ", "") == before


def test_a_name_for_the_model_has_only_characters_that_the_provider_takes() -> None:
    assert build_tool_name("weather", "maps/tiles.get") == "weather__maps_tiles_get"
