"""The offline model splits a request into subjects, aspects and topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.providers.offline.citations import CANNOT_ANSWER
from handoff_queue.shared.providers.offline.request_text import (
    explain_unanswerable,
    extract_request,
    split_items,
    understand,
)
from handoff_queue.shared.providers.offline.words import join_with_and
from handoff_queue.shared.text.word_forms import find_stem
from tests.machine_pace import measure


@pytest.mark.parametrize(
    ("request_text", "subjects", "aspects"),
    [
        (
            "Compare Qdrant, pgvector and Milvus for a team that needs filtering and storage",
            ("Qdrant", "pgvector", "Milvus"),
            ("filtering", "storage"),
        ),
        ("Qdrant vs pgvector", ("Qdrant", "pgvector"), ()),
        (
            "Chroma vs. LanceDB in terms of persistence, filtering and deployment",
            ("Chroma", "LanceDB"),
            ("persistence", "filtering", "deployment"),
        ),
        ("What are the differences between Redis and Vespa?", ("Redis", "Vespa"), ()),
        ("Compare the licences of Redis and Qdrant", ("Redis", "Qdrant"), ("licences",)),
        ("Please compare Qdrant with Milvus, and recommend one.", ("Qdrant", "Milvus"), ()),
        (
            "How do Qdrant and Weaviate differ in hybrid search and licence?",
            ("Qdrant", "Weaviate"),
            ("hybrid search", "licence"),
        ),
        ("Should we use Chroma or FAISS for a prototype?", ("Chroma", "FAISS"), ()),
        ("compare the Halden 40 and the Morrow E by price", ("Halden 40", "Morrow E"), ("price",)),
    ],
)
def test_a_comparison_has_subjects_and_aspects(
    request_text: str, subjects: tuple[str, ...], aspects: tuple[str, ...]
) -> None:
    asking = understand(request_text)

    assert (asking.subjects, asking.aspects) == (subjects, aspects)


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
        ("- What is IVF?\n- What is HNSW?", ("What is IVF?", "What is HNSW?")),
        ("We are a team of five. What does Alpha cost?", ("What does Alpha cost?",)),
        ("What is HNSW? How does it scale?", ("What is HNSW and how does it scale?",)),
        ("Explain HNSW. Then describe IVF.", ("HNSW", "IVF")),
        ("pgvector", ("pgvector",)),
        ("", ("",)),
    ],
)
def test_other_requests_become_questions_and_subjects(
    request_text: str, topics: tuple[str, ...]
) -> None:
    assert understand(request_text).topics == topics


def test_the_request_is_found_inside_a_brief() -> None:
    brief = "Make the plan for the request below.\n\nRequest:\nCompare A and B\nquickly"

    assert extract_request(brief) == "Compare A and B\nquickly"


@given(st.text(max_size=400))
def test_any_text_has_a_subject_or_a_topic(text: str) -> None:
    asking = understand(text)

    assert asking.subjects or asking.topics


@given(
    st.lists(st.from_regex(r"[A-Z][a-z]{2,8}", fullmatch=True), min_size=1, max_size=6, unique=True)
)
def test_a_list_that_was_joined_can_be_read_again(items: list[str]) -> None:
    assert split_items(join_with_and(items)) == items


@pytest.mark.parametrize("text", ["a" * 4_000, "a-" * 2_000, "a." * 2_000, "a+" * 2_000])
def test_a_word_without_an_end_is_read_quickly(text: str) -> None:
    def read() -> None:
        find_stem.cache_clear()
        understand(text)

    assert measure(read, limit_s=0.2) < 0.2


@pytest.mark.parametrize(
    "request_text",
    [
        "?",
        "...",
        "Write a haiku",
        "a haiku please",
        "Please translate a.md into German",
        "Can you write a function that sorts a list?",
        "Tell me a joke",
        "Calculate 17 * 23",
        "Rewrite this in plain English",
    ],
)
def test_work_that_quotes_cannot_do_is_named(request_text: str) -> None:
    assert str(explain_unanswerable(request_text)).startswith(CANNOT_ANSWER)


@pytest.mark.parametrize(
    "request_text",
    [
        "What did we spend on travel?",
        "Summarise the documents.",
        "Compare Aero and Borealis",
        "Write a summary of the incidents",
        "Make a table of prices",
        "What is a haiku?",
        "How do I write a test?",
        "Objective: collect the facts that are needed for the request below.",
    ],
)
def test_a_request_for_facts_can_be_answered(request_text: str) -> None:
    assert explain_unanswerable(request_text) is None
