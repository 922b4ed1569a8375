"""The example documents, and the answers that a newcomer sees first: read what these tests
print when you change either.
"""

from __future__ import annotations

import re

import pytest

from handoff_queue.shared.providers.offline.citations import (
    find_markers,
    iterate_unmarked_statements,
)
from tests.shared.providers.offline.offline_requests import EXAMPLES, Job, Library, run_job

FIRST_REQUEST = (
    "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
)
REQUESTS = re.findall(
    r'^- `"(.+?)"`', (EXAMPLES.parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)
MARKED = re.compile(r"\[[a-z_0-9]+\.c\d+\]\.$")
LIBRARY = Library.of(EXAMPLES)


@pytest.fixture(scope="module")
def first_job() -> Job:
    return run_job(FIRST_REQUEST, LIBRARY)


def test_there_are_at_least_twelve_short_documents() -> None:
    assert len(LIBRARY.texts) >= 12
    assert all(300 <= len(text.split()) <= 600 for text in LIBRARY.texts.values())
    assert all(text.startswith("# ") for text in LIBRARY.texts.values())


@pytest.mark.parametrize(
    "name",
    ["qdrant", "pgvector", "milvus", "weaviate", "chroma", "faiss", "lancedb", "redis", "vespa"],
)
def test_each_product_has_the_same_kinds_of_statements(name: str) -> None:
    headings = set(re.findall(r"^## (.+)$", LIBRARY.texts[f"{name}.md"], re.MULTILINE))
    assert {
        "Filtering",
        "Persistence",
        "Scaling",
        "Deployment",
        "Licence",
        "When to choose it",
    } <= headings


def test_the_first_request_is_researched_by_three_and_passes_the_first_review(
    first_job: Job,
) -> None:
    assert [step["specialist"] for step in first_job.plan["steps"]] == ["researcher"] * 3 + [
        "writer"
    ]
    assert first_job.verdict == {"verdict": "PASS", "revisions": [], "open_points": []}
    assert first_job.answer["status"] == "ok"


def test_the_first_answer_has_a_section_and_a_column_for_each_thing(first_job: Job) -> None:
    output = first_job.answer["output"]
    assert output.startswith("# Qdrant, pgvector and Milvus, compared")
    header = next(line for line in output.splitlines() if line.startswith("|"))
    for thing in ("Qdrant", "pgvector", "Milvus"):
        assert f"\n## {thing}\n" in output
        assert f" {thing} " in header
    assert re.findall(r"^\| (Filtering|Durable storage) ", output, re.MULTILINE) == [
        "Filtering",
        "Durable storage",
    ]


def test_every_statement_of_the_first_answer_points_to_a_quoted_claim(first_job: Job) -> None:
    claims = {
        f"{step}.{claim['id']}": claim
        for step, result in first_job.results.items()
        for claim in result["claims"]
    }
    used = find_markers(first_job.answer["output"])
    assert list(iterate_unmarked_statements(first_job.answer["output"])) == []
    assert len(used) >= 12
    for marker in used:
        for source in claims[marker]["sources"]:
            assert source["quote"] in " ".join(LIBRARY.texts[source["source"]].split())


@pytest.mark.parametrize("request_text", REQUESTS)
def test_each_sample_request_is_answered_without_a_second_round(request_text: str) -> None:
    job = run_job(request_text, LIBRARY)
    assert job.verdict["verdict"] == "PASS"
    assert list(iterate_unmarked_statements(job.answer["output"])) == []
    sentences = [
        line for line in re.split(r"(?<=[.])\s+", job.answer["output"]) if MARKED.search(line)
    ]
    assert len(sentences) == len(set(sentences)), "nothing is said twice"
    assert sentences


@pytest.mark.parametrize(
    ("request_text", "words"),
    [
        ("Compare Qdrant, pgvector and Milvus", "## pgvector"),
        ("Qdrant vs pgvector", "| Licence "),
        ("Compare Qdrant, Weaviate, Redis and Vespa", "## Redis"),
        ("Tell me about pgvector", "PostgreSQL"),
        ("pgvector", "PostgreSQL"),
        (
            "What is pgvector written in?",
            "- pgvector: It is written in C [research_pgvector_written.c1].",
        ),
        ("Which databases are written in C?", "pgvector: It is written in C "),
        ("How does Redis persist data?", "append-only"),
    ],
)
def test_bare_requests_end_well_in_the_first_round(request_text: str, words: str) -> None:
    job = run_job(request_text, LIBRARY)
    assert job.answer["status"] == "ok"
    assert job.verdict == {"verdict": "PASS", "revisions": [], "open_points": []}
    assert words in job.answer["output"]
