"""A handoff knows which texts its model has seen, and which texts its requests still show."""

from __future__ import annotations

from handoff_queue.shared.runtime.payload_cache import PayloadCache
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from tests.doubles.jobs import a_job


def test_a_cleared_text_counts_as_seen_and_not_as_shown(store: Store) -> None:
    finding = build_handoff_id(StepId("find"), 1)
    documents = PayloadCache(store).open_job_documents(a_job(store), finding, Manifest(), None)
    context, seen = documents.tool_context, documents.sources.load_seen_texts
    assert seen is not None
    context.record_text("first")
    context.record_text("second")

    context.hide_text("first")
    context.hide_text("never shown")

    assert list(context.texts_shown()) == ["second"]
    assert list(seen()) == ["first", "second"]


def test_the_pages_of_a_job_are_in_one_order_from_the_newest_to_the_oldest(store: Store) -> None:
    job_id = a_job(store)
    other = PayloadCache(store).open_job_documents(
        job_id, build_handoff_id(StepId("other"), 1), Manifest(), None
    )
    other.tool_context.keep_document("memory:a/b", "text/plain", "first")
    own = PayloadCache(store).open_job_documents(
        job_id, build_handoff_id(StepId("find"), 1), Manifest(), None
    )
    texts = ["second", "third", "fourth"]
    own.tool_context.keep_document("memory:a/b", "text/plain", texts[0])
    own.tool_context.load_fetched_pages()
    for text in texts[1:]:
        own.tool_context.keep_document("memory:a/b", "text/plain", text)

    digests = dict.fromkeys(page.digest for page in own.tool_context.load_fetched_pages())
    assert [own.tool_context.text_of(digest) for digest in digests] == [*texts[::-1], "first"]


def test_an_empty_file_is_opened_by_another_process(store: Store) -> None:
    job_id = a_job(store)
    finding = build_handoff_id(StepId("find"), 1)
    writer = PayloadCache(store).open_job_documents(job_id, finding, Manifest(), None).tool_context
    writer.keep_document("tool:find.1/run_code#a1/empty.txt", "text/plain", "")
    reader = PayloadCache(store).open_job_documents(job_id, finding, Manifest(), None).tool_context

    (page,) = reader.load_fetched_pages()
    assert reader.text_of(page.digest) == ""


def test_only_words_that_the_model_wrote_before_it_saw_a_source_are_its_own(store: Store) -> None:
    finding = build_handoff_id(StepId("find"), 1)
    documents = PayloadCache(store).open_job_documents(a_job(store), finding, Manifest(), None)
    context, list_own_words = documents.tool_context, documents.sources.list_own_words
    page = "https://a.example/?q=in+the+URL"
    context.record_arguments("look", ["before all"])
    context.record_text("a result")
    context.record_tool_result("tool:find.1/look#1", "a result")
    context.record_arguments("fetch_url", ["before the page"])
    context.record_arguments("memory", ["a note"])
    context.record_text(f'{{"source": "{page}"}}')
    context.record_arguments("look", ["after all"])

    assert list_own_words("tool:find.1/look#1") == ["before all"]
    assert list_own_words(page) == ["in the URL", "before all", "before the page"]
    assert list_own_words("https://other.example/") == []


def test_words_that_another_agent_wrote_into_a_call_are_not_the_tools(store: Store) -> None:
    job_id = a_job(store)
    source = "tool:find.1/look#1"
    result = "No entry for: Pump A has a power of 450 kW. Pump B has 45 kW."
    finder = PayloadCache(store).open_job_documents(
        job_id, build_handoff_id(StepId("find"), 1), Manifest(), None
    )
    finder.tool_context.record_arguments("look", {"q": "Pump A has a power of 450 kW"})
    finder.tool_context.record_text(result)
    finder.tool_context.record_tool_result(source, result)
    finder.sources.prove(source, "Pump B has 45 kW.")

    writer = PayloadCache(store).open_job_documents(
        job_id, build_handoff_id(StepId("write"), 1), Manifest(), None
    )
    echo = writer.sources.prove(source, "Pump A has a power of 450 kW.")
    answer = writer.sources.prove(source, "Pump B has 45 kW.")

    assert writer.sources.repeats_own_words(echo, "Pump A has a power of 450 kW.")
    assert not writer.sources.repeats_own_words(answer, "Pump B has 45 kW.")
