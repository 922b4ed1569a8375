"""The `## ` sections of Markdown instructions."""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME_IN_BACKTICKS = re.compile(r"`([A-Za-z0-9_-]+)`")


def split_sections(instructions: str) -> dict[str, str]:
    """Return the `## ` sections of the instructions by heading, each with its heading line.
    The text before the first heading has the key ''.
    """
    lines_by_heading: dict[str, list[str]] = {"": []}
    heading = ""
    in_code = False
    for line in instructions.splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        if line.startswith("## ") and not in_code:
            heading = line[3:].strip()
        lines_by_heading.setdefault(heading, []).append(line)
    sections: dict[str, str] = {}
    for title, lines in lines_by_heading.items():
        sections[title] = "\n".join(lines)
    return sections


def leave_out_sections(instructions: str, tools: Collection[str], missing: Collection[str]) -> str:
    """Return the instructions without the sections for missing tools. The heading of such a
    section names tools in backticks, and the agent has no tool with these names.

    Args:
        tools: names of the tools that the agent has.
        missing: names of tools that it does not have.
    """
    kept_sections: list[str] = []
    for heading, section in split_sections(instructions).items():
        named_tools = set(_NAME_IN_BACKTICKS.findall(heading))
        if named_tools.isdisjoint(missing) or not named_tools.isdisjoint(tools):
            kept_sections.append(section)
    return "\n".join(kept_sections)
