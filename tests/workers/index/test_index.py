"""A search finds the right passages in the right order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff_queue.workers.index.index import DocumentIndex
from tests.workers.index.documents_in_memory import Library

CITIES = Library(
    {
        "cities/paris.md": "# Paris\n\nThe Seine flows through the city. It has many bridges.",
        "cities/rome.md": "# Rome\n\nThe Tiber flows through the city. It has seven hills.",
        "cities/tokyo.md": "# 東京\n\n東京は日本の首都です。隅田川が流れています。",
        "notes.md": (
            "# Notes\n\nA river named in passing: Tiber.\n\n## Café\n\nNaïve résumé of the menu."
        ),
    }
)


def sources(
    index: DocumentIndex, query: str, library: Library = CITIES, limit: int = 8
) -> list[str]:
    return [
        hit.source
        for hit in index.search(library.manifest, query, text_of=library.text_of, limit=limit).hits
    ]


def test_a_hit_is_verbatim_at_its_span(index: DocumentIndex) -> None:
    result = index.search(CITIES.manifest, "seven hills", text_of=CITIES.text_of)

    hit = result.hits[0]
    text = CITIES.text_of(
        next(
            document.digest for document in CITIES.manifest.documents if document.path == hit.source
        )
    )
    assert hit.source == "cities/rome.md"
    assert text[hit.start : hit.end] == hit.snippet
    assert "seven hills" in hit.snippet
    assert hit.score > 0
    assert result.searched == 4


def test_any_word_may_match_and_more_matches_rank_higher(index: DocumentIndex) -> None:
    assert sources(index, "Tiber hills nowhere")[0] == "cities/rome.md"


def test_a_match_in_path_and_heading_counts_more(index: DocumentIndex) -> None:
    library = Library(
        {
            "a.md": "# Other\n\nWe mention rome once here.",
            "rome.md": "# Rome\n\nWe mention rome once here.",
        }
    )

    assert sources(index, "rome", library) == ["rome.md", "a.md"]


@pytest.mark.slow
def test_a_search_leaves_out_passages_that_only_have_the_frequent_word(
    index: DocumentIndex,
) -> None:
    library = Library(
        {
            f"{number:04}.md": f"whale {number} {'plankton' if number in (7, 70) else ''}"
            for number in range(2_500)
        }
    )

    assert set(sources(index, "whale plankton", library, limit=8)) == {"0007.md", "0070.md"}
    assert len(sources(index, "whale", library, limit=8)) == 8


def test_a_part_of_a_word_in_a_path_does_not_count(index: DocumentIndex) -> None:
    library = Library(
        {
            "a.md": "one vector here",
            "pgvector.md": "two vector here",
            "vector.md": "six vector here",
        }
    )

    assert sources(index, "vector", library) == ["vector.md", "a.md", "pgvector.md"]


def test_words_match_in_other_forms_and_without_accents(index: DocumentIndex) -> None:
    assert sources(index, "flowing") == ["cities/paris.md", "cities/rome.md"]
    assert sources(index, "naive RESUME") == ["notes.md"]


def test_scripts_without_spaces_are_found(index: DocumentIndex) -> None:
    assert sources(index, "日本の首都") == ["cities/tokyo.md"]


def test_a_search_without_exact_matches_finds_prefixes_and_misspelt_words(
    index: DocumentIndex,
) -> None:
    assert sources(index, "brid") == ["cities/paris.md"]
    assert sources(index, "Tibre")[0] in ("cities/rome.md", "notes.md")


@pytest.mark.parametrize("query", ["", "   ", "xyzzyq", '"', "NOT", "?!"])
def test_a_search_without_matches_gives_an_empty_list(index: DocumentIndex, query: str) -> None:
    assert sources(index, query) == []


def test_a_search_without_documents_finds_nothing(index: DocumentIndex) -> None:
    empty = Library({})

    assert sources(index, "anything", empty) == []


def test_documents_of_other_jobs_are_never_found(index: DocumentIndex) -> None:
    other = Library({"theirs.md": "The Tiber belongs to them."})
    assert sources(index, "Tiber", other) == ["theirs.md"]

    assert set(sources(index, "Tiber")) == {"cities/rome.md", "notes.md"}
    assert sources(index, "belongs") == []


def test_documents_of_other_jobs_change_no_score(index: DocumentIndex, tmp_path: Path) -> None:
    """Otherwise a job could find out which words the documents of another tenant have."""
    others = Library(
        {f"{number}.md": f"# Rivers\n\nThe Tiber flows, too. {number}" for number in range(50)}
    )
    alone = DocumentIndex(tmp_path / "alone")
    sources(index, "Tiber", others)

    for query in ("Tiber", "river flows city", "Tibre", "brid", "首都"):
        result = index.search(CITIES.manifest, query, text_of=CITIES.text_of)
        assert result.hits
        assert result == alone.search(CITIES.manifest, query, text_of=CITIES.text_of)
    alone.close()


def test_a_misspelt_word_is_compared_with_words_of_the_job_although_others_are_more_similar(
    index: DocumentIndex,
) -> None:
    sources(index, "Tibre", Library({"a.md": " ".join(f"tibr{end}" for end in "acdefghi")}))

    assert sources(index, "Tibre")[0] in ("cities/rome.md", "notes.md")


def test_a_text_is_fetched_once_for_all_jobs_and_processes(
    index: DocumentIndex, tmp_path: Path
) -> None:
    first = Library({"a.md": "alpha", "b.md": "beta"})
    second = Library({"x.md": "alpha", "c.md": "gamma"})
    other_index = DocumentIndex(tmp_path)

    sources(index, "alpha", first)
    assert sources(other_index, "alpha", second) == ["x.md"]
    other_index.close()

    assert len(first.fetched) == 2
    assert len(second.fetched) == 1


def test_a_document_under_two_paths_is_shown_once(index: DocumentIndex) -> None:
    library = Library({"a.md": "alpha", "b.md": "alpha"})

    assert sources(index, "alpha", library) == ["a.md"]


def test_one_document_does_not_fill_all_hits(index: DocumentIndex) -> None:
    long = "\n\n".join(f"## Part {number}\n\nwhale whale whale" for number in range(9))
    library = Library(
        {
            "long.md": long,
            "short.md": "A whale was seen from the shore, and nobody knew what to say about it.",
        }
    )

    assert "short.md" in sources(index, "whale", library, limit=5)


def test_a_missing_text_is_named_and_the_rest_is_searched(index: DocumentIndex) -> None:
    library = Library({"a.md": "alpha one", "b.md": "alpha two"})
    library.lose("b.md")

    result = index.search(library.manifest, "alpha", text_of=library.text_of)

    assert [hit.source for hit in result.hits] == ["a.md"]
    assert result.searched == 1
    assert result.missing == ("b.md",)


def test_the_same_search_gives_the_same_answer_on_another_host(tmp_path: Path) -> None:
    library = Library({f"{number}.md": f"alpha beta {number % 7}" for number in range(300)})
    answers = []
    for host in ("one", "two"):
        index = DocumentIndex(tmp_path / host)
        answers.append(sources(index, "alpha 3", library))
        index.close()

    assert answers[0] == answers[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text())
def test_any_text_is_a_valid_query(index: DocumentIndex, query: str) -> None:
    assert len(sources(index, query, limit=2)) <= 2
