"""Specialists as Markdown files: reading them, and warnings about likely mistakes."""

from __future__ import annotations

from handoff_queue.shared.specialists.specialist_files import (
    load_servers,
    load_specialists,
    read_specialist,
)

__all__ = ["load_servers", "load_specialists", "read_specialist"]
