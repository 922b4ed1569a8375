"""Replace the parts of an output that differ between two runs: ids, times, process ids, ports,
digests and paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from os import getuid
from pwd import getpwuid
from socket import gethostname
from typing import Any

_HOST, _USER = re.escape(gethostname()), re.escape(getpwuid(getuid()).pw_name)
_PATTERNS = {
    rf'(?<=from ){_HOST}\b|(?<="address": )"{_HOST}"': "<host>",
    rf'\b{_USER}(?= via cli)|(?<="name": )"{_USER}"': "<user>",
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?": "<time>",
    r"\b1[789]\d{8}(\.\d+)?\b": "<unix time>",
    r"\bj-(?:[a-z2-7]{16}|[0-9a-f]{12})\b": "<job id>",
    r"\bcompare-[0-9a-f]{6}\b": "<comparison>",
    r"\b[0-9a-f]{64}\b": "<digest>",
    r"\b[0-9a-f]{32}\b": "<trace id>",
    r"\b[0-9a-f]{16}\b": "<span id>",
    r"127\.0\.0\.1:\d+": "<host and port>",
    r"\b[\w.-]+:\d{2,7}(?=$|[\s,:\"])": "<process>",
    r"\b\d+(\.\d+)? ?(ms|s|min|m|h)\b( ?\d+ ?s\b)?": "<duration>",
    r"(?<=\s)\d+\.\d\d(?=\s)": "<seconds>",
    r"\bpid \d+": "pid <pid>",
    r"\bRedis \d+ MB\b": "Redis <memory>",
    r" {2,}": "  ",
    r"─{3,}": "───",
}
_SIZES = ("size", "used_memory_bytes", "job_bytes")
"""Fields that depend on the length of compressed text or on the allocator."""

_MIN_UNIX_TIME = 1_600_000_000


def normalized(output: str, ids: Mapping[str, str], folder: str) -> str:
    """Return the output of a command for a snapshot.

    `ids`: the id of each fixed job by its name. `folder`: the folder in which the command ran.
    JSON lines are printed with an indent, so that a difference is one line.
    """
    return "\n".join(_normalized_line(line, ids, folder) for line in output.splitlines()) + "\n"


def _normalized_line(line: str, ids: Mapping[str, str], folder: str) -> str:
    if line.startswith(("{", "[")):
        try:
            value = _without_variation(json.loads(line))
        except ValueError:
            pass
        else:
            line = json.dumps(value, indent=1, ensure_ascii=False)
    for name, job_id in ids.items():
        line = line.replace(job_id, f"<job {name}>")
    line = line.replace(folder, "<folder>")
    for pattern, word in _PATTERNS.items():
        line = re.sub(pattern, word, line)
    return line.rstrip()


def _without_variation(value: Any) -> Any:
    """Return a JSON value without times and other measured numbers. All floats are measured."""
    if isinstance(value, dict) and value and all(_is_digest(key) for key in value):
        return sorted(json.dumps(_without_variation(item)) for item in value.values())
    if isinstance(value, dict):
        return {
            key: "<bytes>" if key in _SIZES else _without_variation(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_variation(item) for item in sorted(value, key=_handoff_id)]
    if isinstance(value, float) and value != 0:
        return "<float>"
    if isinstance(value, int) and value > _MIN_UNIX_TIME:
        return "<int>"
    return value


def _is_digest(key: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", key) is not None


def _handoff_id(item: Any) -> str:
    """Return the sort key of an item, because parallel steps end in any order."""
    return str(item.get("handoff_id", "")) if isinstance(item, dict) else ""
