"""A request that quotes cannot answer gets no quotes, and is not called done."""

from __future__ import annotations

import pytest

from handoff_queue.shared.providers.offline.answerable_requests import why_not_answerable
from handoff_queue.shared.providers.offline.statements import CANNOT_ANSWER, unmarked_statements
from tests.shared.providers.offline.asking_the_model import Library, work

LIBRARY = Library({"a.md": "# Aero\n\nAero is a thin laptop. It was written about in a poem."})


@pytest.mark.parametrize(
    "request_text",
    [
        "x",
        "?",
        "...",
        "Write a haiku",
        "a haiku please",
        "write me a short poem about Aero",
        "I want a limerick about cats",
        "Please translate a.md into German",
        "Can you write a function that sorts a list?",
        "Tell me a joke",
        "Compose an email to Bob",
        "Calculate 17 * 23",
        "Draft a letter to our customers",
        "Rewrite this in plain English",
        "Generate 10 ideas for names",
        "Write Python code for a queue",
    ],
)
def test_what_quotes_cannot_answer_is_partial_and_says_so(request_text: str) -> None:
    answer = work(f"<task>{request_text}</task>", LIBRARY)

    assert (answer["status"], answer["claims"]) == ("partial", [])
    assert answer["output"].startswith(CANNOT_ANSWER)
    assert answer["problem"].startswith(CANNOT_ANSWER)
    assert list(unmarked_statements(answer["output"])) == []


@pytest.mark.parametrize(
    "request_text",
    [
        "What did we spend on travel?",
        "Summarise the documents.",
        "Summarize",
        "Compare Aero and Borealis",
        "Write a summary of the incidents",
        "Write two pages on pgvector",
        "Draft an overview of HNSW",
        "write up the incidents",
        "Make a table of prices",
        "Create a comparison of the three",
        "Give me the name of the author",
        "Give me the code of the badge door",
        "Order of events on 2 March",
        "Run times of the jobs",
        "What is a haiku?",
        "Who wrote the story of X?",
        "How do I write a test?",
        "Which code runs first?",
        "Research the question: What is HNSW?",
        "Objective: collect the facts that are needed for the request below.",
        "the documents",
    ],
)
def test_what_documents_may_answer_is_looked_for(request_text: str) -> None:
    assert why_not_answerable(request_text) is None
