"""Specialists as Markdown files: reading them, and warnings about likely mistakes."""

from __future__ import annotations

from handoff_queue.shared.specialists.specialist_files import (
    find_specialists_folder,
    load_servers,
    load_specialists,
    read_specialist,
)

__all__ = ["find_specialists_folder", "load_servers", "load_specialists", "read_specialist"]
