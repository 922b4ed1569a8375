"""The files and folders that the commands of the documents name.

A file that a page shows is taken from the page. The others are small files of the same kind.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.samples import of_page
from tests.shared.documents.sample_files import pdf_with

SHOWN = {
    "our-specialists/orders.md": ("docs/how-to/add-a-specialist.md", "markdown", "name: orders"),
    "shop-specialists/stock.md": ("docs/how-to/add-a-specialist.md", "markdown", "name: stock"),
    "memory-specialists/librarian.md": ("docs/how-to/memory.md", "markdown", "name: librarian"),
    "librarian.yaml": ("docs/how-to/memory.md", "yaml", "specialist: librarian"),
    "our-tools/shop.py": ("docs/how-to/add-a-tool.md", "python", "def order_status"),
    "complaints.yaml": ("docs/how-to/workflows.md", "yaml", "for_each: rows"),
    "terms/refunds.md": ("docs/how-to/workflows.md", "markdown", "# Terms"),
    "complaints.csv": ("docs/how-to/workflows.md", "csv", "Order no."),
    "notes/plans.md": ("docs/how-to/gates.md", "markdown", "# Our plans"),
    "prices.csv": ("docs/how-to/gates.md", "csv", "product"),
    "gates.yaml": ("docs/how-to/gates.md", "yaml", "min_words"),
    "rubric.yaml": ("docs/how-to/evaluation.md", "yaml", "accuracy"),
}
"""File -> the page, language and words of the sample that is its text."""
DEADLINE = "The first of the deadlines in the contract with Ann Lee is 2027-03-31."
GOLDEN = {
    "id": "qdrant-language",
    "request": "What is Qdrant written in?",
    "docs": "vector-databases",
    "gates": {"required": ["Rust"], "cited": True},
    "rubric": {"accuracy": "It names Rust."},
}
"""The golden set of the examples has 26 requests, which take minutes."""
JOBS = '{"request": "Summarise the risks", "docs": "contracts"}\n'
OWN = {
    "examples/golden.jsonl": json.dumps(GOLDEN),
    "jobs.jsonl": JOBS,
    "contracts/lee.md": f"{DEADLINE} The main risk is a late delivery.",
    "contracts/ray.md": (
        "The last of our three contracts ends on 2026-12-31. Its risk is the price."
    ),
    "licences/search.md": "The licence of the search library allows resale without a fee.",
    "notes/databases.md": "We should take the database Qdrant. Our plans are Basic and Team.",
    "deadlines.json": '{"type": "object", "properties": {"deadlines": {"type": "array"}}}',
}
"""File -> its text. The offline model finds an answer in the documents."""


def write_sample_files(folder: Path) -> None:
    """Write all files, copy the examples of the repository, and link its virtual environment."""
    for name, (page, language, words) in SHOWN.items():
        _write(folder / name, of_page(page, language, words))
    for name, text in OWN.items():
        _write(folder / name, text)
    (folder / "contract.pdf").write_bytes(pdf_with(DEADLINE))
    for path in (ROOT / "examples").iterdir():
        if path.is_dir():
            shutil.copytree(path, folder / "examples" / path.name)
    (folder / ".env.example").symlink_to(ROOT / ".env.example")
    (folder / ".venv").symlink_to(sys.prefix)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
