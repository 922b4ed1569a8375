"""Specialists as Markdown files: reading them, and warning of what will make them work badly."""

from __future__ import annotations

from handoff_queue.shared.specialists.reader import load_specialists, read_specialist

__all__ = ["load_specialists", "read_specialist"]
