"""What a request in plain words is understood to ask for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.request_questions import (
    joined,
    listed,
    request_in,
    understand,
)


@pytest.mark.parametrize(
    ("request_text", "things", "aspects"),
    [
        (
            "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage",
            ("Qdrant", "pgvector", "Milvus"),
            ("filtering", "durable storage"),
        ),
        ("Qdrant vs pgvector", ("Qdrant", "pgvector"), ()),
        (
            "Chroma vs. LanceDB in terms of persistence, filtering and deployment",
            ("Chroma", "LanceDB"),
            ("persistence", "filtering", "deployment"),
        ),
        ("What are the differences between Redis and Vespa?", ("Redis", "Vespa"), ()),
        (
            "Compare the licences of Redis, Weaviate and Qdrant",
            ("Redis", "Weaviate", "Qdrant"),
            ("licences",),
        ),
        ("Please compare Qdrant with Milvus, and recommend one.", ("Qdrant", "Milvus"), ()),
        (
            "How do Qdrant and Weaviate differ in hybrid search and licence?",
            ("Qdrant", "Weaviate"),
            ("hybrid search", "licence"),
        ),
        ("Should we use Chroma or FAISS for a prototype?", ("Chroma", "FAISS"), ()),
        ("compare postgres and mysql", ("postgres", "mysql"), ()),
    ],
)
def test_a_comparison_is_taken_apart_into_things_and_aspects(
    request_text: str, things: tuple[str, ...], aspects: tuple[str, ...]
) -> None:
    asking = understand(request_text)
    assert asking.things == things
    assert asking.aspects == aspects


@pytest.mark.parametrize(
    ("request_text", "topics"),
    [
        ("How does HNSW work?", ("How does HNSW work?",)),
        (
            "How does HNSW work, and how does quantization save memory?",
            ("How does HNSW work?", "How does quantization save memory?"),
        ),
        (
            "Explain hybrid search, post-filtering and recall",
            ("hybrid search", "post-filtering", "recall"),
        ),
        (
            "What licence does Qdrant have and how does it scale?",
            ("What licence does Qdrant have and how does it scale?",),
        ),
        ("- What is IVF?\n- What is HNSW?", ("What is IVF?", "What is HNSW?")),
        ("What does Alpha cost? It's $HOME or so. We are five people.", ("What does Alpha cost?",)),
        (
            "We are a small team. What does Alpha cost? And what is HNSW?",
            ("What does Alpha cost?", "And what is HNSW?"),
        ),
        ("What is HNSW? How does it scale?", ("What is HNSW and how does it scale?",)),
        ("Explain HNSW. Then describe IVF.", ("HNSW", "IVF")),
        ("Explain vector search e.g. HNSW. Keep it short.", ("vector search e.g. HNSW",)),
        (
            "Our notes:\n- What is IVF?\n- the cost of HNSW\nThank you.",
            ("Our notes:", "What is IVF?", "the cost of HNSW"),
        ),
        ("A poem about snow. It must rhyme.", ("A poem about snow. It must rhyme",)),
        ("", ("",)),
    ],
)
def test_other_requests_become_questions(request_text: str, topics: tuple[str, ...]) -> None:
    assert understand(request_text).topics == topics


def test_the_request_is_found_inside_a_brief() -> None:
    assert (
        request_in("Make the plan for the request below.\n\nRequest:\nCompare A and B\nquickly")
        == "Compare A and B\nquickly"
    )


@given(st.text(max_size=400))
def test_any_text_is_understood_as_something(text: str) -> None:
    asking = understand(text)
    assert asking.things or asking.topics


@given(
    st.lists(st.from_regex(r"[A-Z][a-z]{2,8}", fullmatch=True), min_size=1, max_size=6, unique=True)
)
def test_a_list_that_was_joined_is_read_back(items: list[str]) -> None:
    assert listed(joined(items)) == items


@pytest.mark.parametrize("text", ["a" * 4_000, "a-" * 2_000, "a." * 2_000, "a+" * 2_000])
def test_one_word_without_an_end_is_read_as_fast_as_any_other_text(text: str) -> None:
    began = time.process_time()
    understand(text)

    assert time.process_time() - began < 0.2
