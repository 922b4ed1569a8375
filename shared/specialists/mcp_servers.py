"""The MCP servers whose tools a specialist may use: the field `mcp` of its file.

A person accepts the description and the schemas of each tool. `NAME.mcp.json`, next to the
specialist's file, holds the accepted listing, and the specialist's file holds its digest. So a
worker knows the tools without a connection, and notices a server that lists other tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, check_schema
from handoff_queue.shared.agent.tool import check_parameter_names
from handoff_queue.shared.settings.http_values import split_http_url
from handoff_queue.shared.text.yaml_reader import parse_tree
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.limits import MAX_TOOL_TIMEOUT_S
from handoff_queue.shared.types.message import Message, compute_digest, iterate_problems
from handoff_queue.shared.types.names import NAME_PATTERN

MAX_LISTING_BYTES = 1_000_000
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of tools that the Messages API takes."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable in the value of a header."""

Listing = Mapping[str, Mapping[str, Any]]
"""The tools of a server by name, each with the fields of `tools/list`."""
Line = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,100}$")]


class McpServer(Message):
    """An MCP server, as the front matter names it."""

    command: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    """The command of a server over stdin and stdout."""
    url: Line | None = None
    """The URL of a server over streamable HTTP."""
    env: Annotated[tuple[Variable, ...], Field(max_length=50)] = ()
    """The variables of the worker's environment that the command gets, besides PATH."""
    headers: dict[str, Line] = Field(default_factory=dict)
    """The headers of each request. `${NAME}` stands for a variable of the worker's environment."""
    tools: Annotated[tuple[Line, ...], Field(min_length=1, max_length=100)]
    """The only tools of the server that the specialist may use."""
    timeout_s: Annotated[float, Field(gt=0, le=MAX_TOOL_TIMEOUT_S, strict=False)] = 60.0
    """Seconds after which a call has failed, with the time to connect."""
    allow_private: bool = False
    """True if the URL may have addresses that are not on the public internet."""
    digest: str | None = None
    """The digest of the accepted listing. None: no person has accepted the tools."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the variables that the server gets, each once."""
        names = dict.fromkeys(self.env)
        for value in self.headers.values():
            names |= dict.fromkeys(_VARIABLE.findall(value))
        return tuple(names)


@dataclass(frozen=True, slots=True)
class AcceptedServer:
    """An MCP server with the listing that a person has accepted."""

    name: str
    config: McpServer
    listing: Listing
    file: Path
    """The file of the specialist. Its folder is the working directory of the command."""

    @property
    def tools(self) -> dict[str, str]:
        """Return the tools of the server: the name for the model -> the server's own name."""
        return {build_tool_name(self.name, tool): tool for tool in self.config.tools}


def build_tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for the model, such as `weather__forecast`."""
    return f"{server}__{re.sub(r'[^a-zA-Z0-9_-]', '_', tool)}"


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return the value of a header with the values of its variables."""
    return _VARIABLE.sub(lambda match: values[match[1]], text)


def get_listing_file(file: Path) -> Path:
    """Return the path of the accepted listings of a specialist's file."""
    return file.with_name(f"{file.stem}.mcp.json")


def compute_listing_digest(listing: Listing) -> str:
    """Return the digest of a listing. YAML would read some digests without a prefix as numbers."""
    return f"sha256-{compute_digest(json.dumps(listing, sort_keys=True))}"


def read_servers(value: Any) -> tuple[dict[str, McpServer], list[str]]:
    """Return the servers of a field `mcp`, and the faults of the others."""
    if not isinstance(value, dict) or not value:
        return {}, ["must name servers, as in `weather: {command: [weather-server], tools: [...]}`"]
    servers: dict[str, McpServer] = {}
    faults: list[str] = []
    for name, fields in value.items():
        try:
            server = McpServer.model_validate_json(json.dumps(fields))
        except (ValidationError, TypeError, ValueError) as error:
            faults += _find_problems(str(name), error)
            continue
        problems = [f"{name}: {problem}" for problem in _find_server_problems(str(name), server)]
        faults += problems
        if not problems:
            servers[str(name)] = server
    return servers, faults


def _find_problems(name: str, error: Exception) -> Iterator[str]:
    if not isinstance(error, ValidationError):
        yield f"{name}: must be text, numbers and lists"
        return
    for where, problem in iterate_problems(error, McpServer):
        yield ".".join((name, *where)) + f": {problem}"


def _find_server_problems(name: str, server: McpServer) -> Iterator[str]:
    if not re.fullmatch(NAME_PATTERN, name):
        yield "is not a name: use lower-case letters, digits, - and _, a letter first"
    if bool(server.command) == (server.url is not None):
        yield "needs either a command or a url"
    if server.url is not None:
        yield from _find_url_problems(server.url, server)
    if server.command and server.headers:
        yield "headers belong to a url: remove them"
    if server.url is not None and server.env:
        yield "env belongs to a command: write ${NAME} in a header"
    names = [build_tool_name(name, tool) for tool in server.tools]
    for full_name, tool in zip(names, server.tools, strict=True):
        if names.count(full_name) > 1:
            yield f"tools: {tool} is named twice; name it once"
        elif not TOOL_NAME.fullmatch(full_name):
            yield f"tools: {full_name[:80]} has more than 64 characters; shorten the server's name"


def _find_url_problems(url: str, server: McpServer) -> Iterator[str]:
    try:
        parts = split_http_url(url)
    except ValueError as error:
        yield f"url: {error}"
        return
    if "@" in parts.netloc:
        yield "url: must hold no user and no password: write a header with ${NAME}"
    if server.variables and parts.scheme != "https" and not server.allow_private:
        yield "url: must begin with https://, because the headers have a secret"


def read_accepted_servers(
    file: Path, servers: Mapping[str, McpServer]
) -> tuple[list[AcceptedServer], list[str]]:
    """Return the servers whose tools a person has accepted, and a fault for each other one."""
    listings, problem = read_listings(file)
    accepted_servers: list[AcceptedServer] = []
    faults: list[str] = []
    for name, server in servers.items():
        listing = listings.get(name, {})
        fault = (
            problem
            or _find_acceptance_fault(name, server, listing)
            or find_listing_fault(name, listing)
        )
        if fault:
            faults.append(fault)
        else:
            accepted_servers.append(AcceptedServer(name, server, listing, file))
    return accepted_servers, faults


def read_listings(file: Path) -> tuple[dict[str, Listing], str | None]:
    """Return the accepted listings of a specialist's file, or the reason why there are none."""
    path = get_listing_file(file)
    try:
        if path.stat().st_size > MAX_LISTING_BYTES:
            return {}, f"{path.name} is larger than {MAX_LISTING_BYTES:,} bytes"
        listings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError):
        return {}, f"{path.name} cannot be read: remove it, and accept the tools again"
    are_listings = isinstance(listings, dict) and all(map(_is_listing, listings.values()))
    if not are_listings:
        return {}, f"{path.name} holds no listings: remove it, and accept the tools again"
    return listings, None


def _is_listing(value: Any) -> bool:
    """Return whether a JSON value is an object of objects."""
    if not isinstance(value, dict):
        return False
    return all(isinstance(tool, dict) for tool in value.values())


def _find_acceptance_fault(name: str, server: McpServer, listing: Listing) -> str | None:
    is_accepted = server.digest is not None and server.digest == compute_listing_digest(listing)
    if is_accepted and set(listing) == set(server.tools):
        return None
    return (
        f"{name}: no person has accepted these tools: run"
        " `handoff specialists --accept-mcp FILE` with this file"
    )


def find_listing_fault(name: str, listing: Listing) -> str | None:
    """Return the reason why a model cannot use a tool of a listing, or None."""
    for tool, fields in listing.items():
        schema = fields.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return f"{name}: the schema of {tool[:64]} must have the type object"
        try:
            check_parameter_names(build_tool_name(name, tool), schema)
            check_schema(schema)
            check_schema(fields.get("outputSchema", {}))
        except (InvalidTool, BrokenSchema) as error:
            return f"{name}: {tool[:64]}: {error}"
    return None


def with_digests(text: str, digests: Mapping[str, str]) -> str:
    """Return the text of a specialist's file with these digests of its servers. The last server
    comes first, so that the places of the servers before it stay the same.

    Raises:
        YamlFault: the front matter is not YAML.
    """
    start = text.index("\n") + 1
    root = parse_tree(text[start : text.index("\n---", start)])
    servers = next(value for key, value in root.value if key.value == "mcp")  # type: ignore[union-attr]
    for name, server in reversed(servers.value):
        fields = {key.value: value for key, value in server.value}
        digest = digests[name.value]
        if "digest" in fields:
            digest_before = fields["digest"]
            begin = start + digest_before.start_mark.index
            end = start + digest_before.end_mark.index
            text = f"{text[:begin]}{digest}{text[end:]}"
        else:
            first_key, _ = server.value[0]
            mark = first_key.start_mark
            separator = ", " if server.flow_style else "\n" + " " * mark.column
            begin = start + mark.index
            text = f"{text[:begin]}digest: {digest}{separator}{text[begin:]}"
    return text
