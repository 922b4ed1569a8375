"""`handoff specialists --accept-mcp`: accept the tools of the MCP servers of a specialist."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.specialists.mcp_servers import (
    MAX_LISTING_BYTES,
    Listing,
    McpServer,
    compute_listing_digest,
    find_listing_fault,
    get_listing_file,
    read_listings,
    read_servers,
    with_digests,
)
from handoff_queue.shared.specialists.specialist_files import MCP, parse
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.display.atomic_output import write_out
from handoff_queue.supervisor.cli.display.terminal import (
    can_ask,
    confirm,
    print_progress,
    write_line,
)
from handoff_queue.supervisor.cli.errors import FAILED, OK

_LISTING = "handoff_queue.workers.tools.mcp.listing"
"""A name only: the supervisor must not import the code of the workers."""


def accept_mcp(file: Path, *, is_sure: bool) -> int:
    """Show the tools that have changed since they were accepted, and accept them.

    Args:
        is_sure: do not ask the person at the terminal.

    Raises:
        UserError: the file names no servers, a server does not answer, a tool cannot be used, or no
            person can be asked.
    """
    check_extra("mcp", "handoff specialists --accept-mcp", "mcp")
    check_extra("worker", "handoff specialists --accept-mcp")
    servers = _read_servers(file)
    listings = _fetch_listings(file)
    for name, listing in listings.items():
        if problem := find_listing_fault(name, listing):
            raise UserError(f"{file}: {problem}")
    before, _ = read_listings(file)
    changes = list(_iterate_changes(before, listings))
    if not changes and all(
        server.digest == compute_listing_digest(listings[name]) for name, server in servers.items()
    ):
        print_progress(f"{file}: these tools are accepted already")
        return OK
    for line in changes:
        write_line(line)
    if not is_sure and not can_ask():
        raise UserError(
            "there is no terminal to ask on: read the tools above, and accept them with --yes"
        )
    if not is_sure and not confirm(f"accept these tools for {file.name}?"):
        return FAILED
    _accept(file, listings)
    print_progress(f"{file}: the tools are accepted")
    return OK


def _read_servers(file: Path) -> dict[str, McpServer]:
    parts = parse(file)
    if MCP not in parts.fields:
        raise UserError(f"{file}: has no field {MCP}: there is nothing to accept")
    servers, faults = read_servers(parts.fields[MCP])
    if faults:
        raise UserError(f"{file}:{parts.get_line(MCP)}: {MCP}: {'; '.join(faults)}")
    return servers


def _fetch_listings(file: Path) -> dict[str, Listing]:
    """Return the tools that the servers list now. A process of its own talks to the servers.

    Raises:
        UserError: a server does not answer, or does not list a tool.
    """
    process = subprocess.run(
        [sys.executable, "-P", "-m", _LISTING, str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["the servers cannot be asked"]
        raise UserError(f"{file}: {lines[-1]}")
    listings: dict[str, Listing] = json.loads(process.stdout)
    return listings


def _iterate_changes(before: Mapping[str, Listing], now: Mapping[str, Listing]) -> Iterator[str]:
    """Yield the lines that differ. Characters outside ASCII are escaped, because a description
    may hold invisible characters and commands for a terminal.
    """
    for name in sorted({*before, *now}):
        old, new = (
            json.dumps(listings.get(name, {}), indent=2, sort_keys=True).splitlines()
            for listings in (before, now)
        )
        yield from difflib.unified_diff(
            old, new, f"{name}: accepted", f"{name}: now", lineterm="", n=100
        )


def _accept(file: Path, listings: Mapping[str, Listing]) -> None:
    """Write the listings first. Until the digests are written, a worker refuses the file.

    Raises:
        UserError: the listings are too large, or the front matter cannot be changed.
    """
    text = json.dumps(listings, indent=2, sort_keys=True) + "\n"
    if len(text) > MAX_LISTING_BYTES:
        raise UserError(
            f"{file}: the descriptions of the tools have {len(text):,} characters, at most"
            f" {MAX_LISTING_BYTES:,} are allowed: name fewer tools in `{MCP}`"
        )
    digests = {name: compute_listing_digest(listing) for name, listing in listings.items()}
    changed_text = with_digests(file.read_text(encoding="utf-8-sig"), digests)
    write_out(get_listing_file(file), text)
    write_out(file, changed_text)
