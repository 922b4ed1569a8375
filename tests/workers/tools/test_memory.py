"""The tool `memory` writes notes with evidence, and finds them for a later job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.agent.tool_calls import ToolThreads
from handoff_queue.shared.store import memory_notes
from handoff_queue.shared.store.memory_notes import HandoffNotes
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.memory_notes import MAX_NOTE_CHARS, MEMORY_FULL, Note
from handoff_queue.shared.types.origins import DOCUMENT, MODEL, USER
from handoff_queue.supervisor.client.memory_notes import write_note
from handoff_queue.testing import tool_call_reply
from handoff_queue.workers.tools.memory import build_memory_tool
from handoff_queue.workers.tools.read_document import read_document_tool
from tests.doubles.agent_runs import answer_reply, run_with_replies
from tests.doubles.handoffs import a_tool
from tests.doubles.jobs import a_job
from tests.workers.tools.contexts import ToolHarness

TOOL = build_memory_tool()
GUIDE = "Qdrant is written in Rust. Its licence is Apache 2.0."
NEW = {
    "command": "create",
    "path": "/memories/qdrant/licence.md",
    "file_text": "Qdrant has the licence Apache 2.0.",
    "source": "guide.md",
    "quote": "Its licence is Apache 2.0.",
}


def harness_for(store: Store, job_id: JobId, texts: dict[str, str]) -> ToolHarness:
    """Return the context of a handoff of a job, with these documents."""
    harness = ToolHarness(texts)
    sources = Sources(
        harness.library.text_of, harness.library.manifest, keep=harness.context.keep_document
    )
    name = store.notes.make_name(store.jobs.get_tenant(job_id))
    harness.context = replace(
        harness.context,
        prove=sources.prove,
        notes=partial(HandoffNotes, store.connection, job_id, "researcher", name),
        seen_origins=lambda: (DOCUMENT, MODEL, USER),
    )
    return harness


@pytest.fixture
def first(store: Store) -> ToolHarness:
    """Return the context of a job with the document `guide.md`."""
    return harness_for(store, a_job(store, "acme"), {"guide.md": GUIDE})


@pytest.fixture
def later(store: Store) -> ToolHarness:
    """Return the context of a later job of the tenant, without documents."""
    return harness_for(store, a_job(store, "acme"), {})


def paths_of(harness: ToolHarness) -> list[str]:
    """Return the paths of all notes in the list of the tool."""
    lines = harness.call(TOOL, command="view", path="/memories").splitlines()[2:]
    paths = [line.partition("\t")[2].removeprefix("/memories/") for line in lines]
    return [path for path in paths if not path.endswith("/")]


def notes_of(harness: ToolHarness, query: str) -> list[dict[str, Any]]:
    notes = json.loads(harness.call(TOOL, command="search", query=query))["notes"]
    assert isinstance(notes, list)
    return notes


def date_of_note(store: Store) -> str:
    (entry,) = store.notes.list_all("acme")
    return datetime.fromtimestamp(entry.note.at, UTC).strftime("%Y-%m-%d")


def test_a_later_job_finds_the_note_with_its_evidence(
    store: Store, first: ToolHarness, later: ToolHarness
) -> None:
    first.call(TOOL, **NEW)

    (note,) = notes_of(later, "licences of Qdrant")

    assert note == {
        "source": "memory:qdrant/licence (guide.md)",
        "author": "researcher",
        "date": date_of_note(store),
        "text": "Qdrant has the licence Apache 2.0.",
        "quote": "Its licence is Apache 2.0.",
    }


def test_one_reply_can_delete_notes_and_write_them_again(store: Store, first: ToolHarness) -> None:
    arguments: list[dict[str, Any]] = []
    for number in range(8):
        note = {**NEW, "path": f"/memories/qdrant/{number}"}
        first.call(TOOL, **note)
        new_note = {**note, "file_text": "Qdrant is written in Rust."}
        arguments += [{"command": "delete", "path": note["path"]}, new_note]
    blocks = [
        {"type": "tool_use", "id": str(number), "name": TOOL.name, "input": values}
        for number, values in enumerate(arguments)
    ]
    list(ToolThreads({TOOL.name: TOOL}, first.context).run_calls(blocks, lambda: None))

    assert [entry.note.text for entry in store.notes.list_all("acme")] == [
        "Qdrant is written in Rust."
    ] * 8


@pytest.mark.parametrize(
    ("path", "text", "query"),
    [
        ("jp/price", "価格は3000円", "価格"),
        ("cn/addr", "公司地址在上海市浦东新区", "上海"),
        ("kr/addr", "본사는 서울에 있습니다", "서울"),
        ("api/rate_limits", "60 calls a minute", "rate_limits"),
        ("api/rate_limits", "60 calls a minute", "rate limit"),
        ("api/retries", "MAX_RETRY_COUNT is 7", "retry"),
        ("api/retries", "MAX_RETRY_COUNT is 7", "MAX_RETRY_COUNT"),
        ("ch/office", "The office is in Zürich.", "Zurich"),
        ("ch/office", "The office is in Zürich.", "Zürich"),
        ("ch/office", "The office is in Zurich.", "Zürich"),
        ("ru/office", "Российский офис", "российский"),
    ],
)
def test_a_search_finds_words_in_every_script_and_spelling(
    store: Store, later: ToolHarness, path: str, text: str, query: str
) -> None:
    write_note(store, path, text, "acme", None)

    assert [note["text"] for note in notes_of(later, query)] == [text]


@pytest.mark.parametrize("query", ["東海", "limits_x", "ии"])
def test_a_search_finds_no_note_without_the_words(
    store: Store, later: ToolHarness, query: str
) -> None:
    write_note(store, "cn/addr", "上海 东京", "acme", None)

    assert notes_of(later, query) == []


def test_view_shows_the_source_the_author_and_the_date_of_a_note_below_its_lines(
    store: Store, first: ToolHarness, later: ToolHarness
) -> None:
    first.call(TOOL, **NEW)

    *lines, about = later.call(TOOL, command="view", path="qdrant/licence").split("\n")

    assert lines == [
        "Here's the content of /memories/qdrant/licence with line numbers:",
        "     1\tQdrant has the licence Apache 2.0.",
    ]
    assert json.loads(about) == {
        "source": "memory:qdrant/licence (guide.md)",
        "author": "researcher",
        "date": date_of_note(store),
        "quote": "Its licence is Apache 2.0.",
    }


def test_only_the_quote_of_a_found_note_can_be_cited(
    first: ToolHarness, later: ToolHarness
) -> None:
    first.call(TOOL, **NEW)
    notes_of(later, "licence")

    assert later.kept_documents == {
        "memory:qdrant/licence (guide.md)": ("text/plain", "Its licence is Apache 2.0.")
    }


def test_the_text_of_the_note_of_a_person_can_be_cited(store: Store, later: ToolHarness) -> None:
    write_note(store, "qdrant/licence", "Ask the lawyers.", "acme", None)

    (note,) = notes_of(later, "lawyers")

    assert "quote" not in note
    assert later.kept_documents == {note["source"]: ("text/plain", "Ask the lawyers.")}


def test_a_note_from_a_document_with_a_long_name_is_found(store: Store, later: ToolHarness) -> None:
    url = f"https://site.example/{'a' * 970}"
    first = harness_for(store, a_job(store, "acme"), {url: GUIDE})
    first.call(TOOL, **{**NEW, "source": url, "path": f"{'q' * 48}/{'l' * 80}"})

    (note,) = notes_of(later, "licence")

    assert "(https://site.example/aaa" in note["source"]


def test_the_note_that_fits_best_comes_first(first: ToolHarness, later: ToolHarness) -> None:
    first.call(TOOL, **NEW)
    first.call(TOOL, **{**NEW, "path": "qdrant/language", "file_text": "Qdrant: Rust."})

    paths = [note["source"] for note in notes_of(later, "In which language is Qdrant?")]

    assert paths == ["memory:qdrant/language (guide.md)", "memory:qdrant/licence (guide.md)"]


def test_a_job_of_another_tenant_finds_nothing(store: Store, first: ToolHarness) -> None:
    first.call(TOOL, **NEW)

    assert notes_of(harness_for(store, a_job(store, "other"), {}), "licence") == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quote": "Its licence is MIT."}, "this quote is not in"),
        ({"source": "nothing.md"}, "there is no source"),
        ({"source": ""}, "a new text needs evidence: add `source`"),
        ({"quote": ""}, "a new text needs evidence: add `source`"),
        ({"path": "licence"}, "is not a path: write SUBJECT/NAME"),
        ({"path": "../../etc/passwd"}, "is not a path"),
        ({"file_text": " "}, "write 1 to"),
        ({"file_text": "x" * (MAX_NOTE_CHARS + 1)}, "write 1 to"),
        ({"command": "str_replace", "old_str": "a", "new_str": "b"}, "does not exist"),
    ],
)
def test_a_note_without_evidence_or_a_valid_form_is_refused(
    first: ToolHarness, changes: dict[str, str], problem: str
) -> None:
    assert problem in first.failure(TOOL, **{**NEW, **changes})


def test_a_note_is_not_evidence_for_a_note(first: ToolHarness, later: ToolHarness) -> None:
    first.call(TOOL, **NEW)
    notes_of(first, "licence")
    manifest = first.library.manifest
    own = first.kept_documents["memory:qdrant/licence (guide.md)"][1]
    assert manifest.documents

    harness = ToolHarness({"memory:qdrant/licence": own})
    sources = Sources(harness.library.text_of, harness.library.manifest)
    first.context = replace(first.context, prove=sources.prove)

    again = {**NEW, "path": "qdrant/copy", "source": "memory:qdrant/licence"}
    assert "a note is not evidence" in first.failure(TOOL, **again)


def test_an_agent_changes_a_part_of_a_note_with_new_evidence(first: ToolHarness) -> None:
    first.call(TOOL, **NEW)

    evidence = {"source": "guide.md", "quote": "Qdrant is written in Rust."}
    changed = {"command": "str_replace", "path": "qdrant/licence", **evidence}
    first.call(TOOL, **changed, old_str="Qdrant", new_str="Qdrant (Rust)")
    inserted = {"command": "insert", "path": "qdrant/licence", **evidence}
    first.call(TOOL, **inserted, insert_line=0, insert_text="In short:")

    (note,) = notes_of(first, "licence")
    assert note["text"].startswith("In short:\nQdrant (Rust) has the licence")


def with_call(harness: ToolHarness, call_id: str) -> ToolHarness:
    """Give the next calls this id. A call that is repeated after a kill has its old id."""
    harness.context = replace(harness.context, call_id=call_id)
    return harness


def test_a_call_that_is_repeated_after_a_kill_writes_its_text_once(first: ToolHarness) -> None:
    with_call(first, "t1").call(TOOL, **NEW)
    lines = {**NEW, "command": "insert", "insert_line": 1, "insert_text": "Since 2021."}

    answers = [with_call(first, "t2").call(TOOL, **lines) for _ in range(2)]

    assert answers[0] == answers[1]
    (note,) = notes_of(first, "licence")
    assert note["text"].count("Since 2021.") == 1


def test_a_rename_at_the_cap_of_notes_passes(
    first: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.call(TOOL, **NEW)
    monkeypatch.setattr(memory_notes, "MAX_NOTES", 1)
    renamed = {"command": "rename", "old_path": "qdrant/licence", "new_path": "qdrant/terms"}
    with_call(first, "t2").call(TOOL, **renamed)
    again = with_call(first, "t2").call(TOOL, **renamed)

    assert paths_of(first) == ["qdrant/terms"]
    assert again.startswith("Successfully renamed")


def test_a_repeated_rename_does_not_remove_a_new_note_at_the_old_path(first: ToolHarness) -> None:
    first.call(TOOL, **NEW)
    renamed = {"command": "rename", "old_path": "qdrant/licence", "new_path": "qdrant/terms"}
    with_call(first, "t2").call(TOOL, **renamed)
    with_call(first, "t3").call(TOOL, **{**NEW, "quote": "Qdrant is written in Rust."})

    with_call(first, "t2").call(TOOL, **renamed)

    assert paths_of(first) == ["qdrant/licence", "qdrant/terms"]


def test_an_agent_renames_and_deletes_a_note(first: ToolHarness) -> None:
    first.call(TOOL, **NEW)

    first.call(TOOL, command="rename", old_path="qdrant/licence", new_path="qdrant/terms")
    assert paths_of(first) == ["qdrant/terms"]
    first.call(TOOL, command="delete", path="qdrant/terms")
    assert paths_of(first) == []


EVIDENCE = {"source": NEW["source"], "quote": NEW["quote"]}


@pytest.mark.parametrize("size", [0, 100_000])
def test_the_note_of_a_person_with_a_wrong_length_is_refused_with_both_lengths(
    store: Store, size: int
) -> None:
    line = f"the text of the note has {size:,} characters: write 1 to 4,000"
    with pytest.raises(UserError, match=line):
        write_note(store, "a/b", "x" * size, "acme", None)


@pytest.mark.parametrize(
    "change",
    [
        NEW,
        {"command": "str_replace", "old_str": "lawyers", "new_str": "model", **EVIDENCE},
        {"command": "insert", "insert_line": 0, "insert_text": "Never:", **EVIDENCE},
        {"command": "delete"},
        {"command": "rename", "old_path": "qdrant/licence", "new_path": "qdrant/terms"},
        {"command": "rename", "old_path": "qdrant/language", "new_path": "qdrant/licence"},
    ],
    ids=["create", "str_replace", "insert", "delete", "rename", "rename-onto"],
)
def test_an_agent_cannot_change_move_or_remove_a_note_that_a_person_edited(
    store: Store, first: ToolHarness, change: dict[str, Any]
) -> None:
    first.call(TOOL, **NEW)
    first.call(TOOL, **{**NEW, "path": "qdrant/language"})
    edited = write_note(store, "qdrant/licence", "Ask the lawyers.", "acme", None)
    before = store.notes.list_all("acme")

    problem = first.failure(TOOL, **{"path": "/memories/qdrant/licence.md", **change})

    assert "a person wrote /memories/qdrant/licence: leave this note" in problem
    assert store.notes.list_all("acme") == before
    assert edited in [entry.note for entry in before]


@pytest.mark.parametrize("command", ["delete", "rename"])
@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("", "the /memories directory itself"),
        ("/memories", "the /memories directory itself"),
        ("/memories/qdrant", "the directory /memories/qdrant"),
        ("qdrant/", "the directory /memories/qdrant"),
    ],
)
def test_no_command_changes_all_notes_of_a_subject(
    store: Store, first: ToolHarness, command: str, path: str, directory: str
) -> None:
    first.call(TOOL, **NEW)
    write_note(store, "qdrant/terms", "Ask the lawyers.", "acme", None)
    before = store.notes.list_all("acme")

    moved = {"path": path, "old_path": path, "new_path": "other/licence"}
    problem = first.failure(TOOL, command=command, **moved)
    assert f"Cannot {command} {directory}" in problem
    assert store.notes.list_all("acme") == before


def test_a_note_is_not_renamed_onto_another_note(store: Store, first: ToolHarness) -> None:
    first.call(TOOL, **NEW)
    first.call(TOOL, **{**NEW, "path": "qdrant/terms", "file_text": "Qdrant has terms."})
    before = store.notes.list_all("acme")

    renamed = {"command": "rename", "old_path": "qdrant/licence", "new_path": "qdrant/terms"}
    assert "The destination /memories/qdrant/terms already exists" in first.failure(TOOL, **renamed)
    assert store.notes.list_all("acme") == before


@pytest.mark.parametrize("command", ["insert", "delete"])
def test_a_person_who_edits_a_note_during_the_call_keeps_it(
    store: Store, first: ToolHarness, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The store compares the note with the note that the call has read."""
    first.call(TOOL, **NEW)
    read = HandoffNotes.list_all

    def edited_after_the_read(notes: HandoffNotes) -> list[Note]:
        stored = read(notes)
        write_note(store, "qdrant/licence", "Ask the lawyers.", "acme", None)
        return stored

    monkeypatch.setattr(HandoffNotes, "list_all", edited_after_the_read)
    assert "in the meantime" in first.failure(
        TOOL, **{**NEW, "insert_text": "x", "command": command}
    )
    (kept,) = store.notes.list_all("acme")
    assert kept.note.text == "Ask the lawyers."


def test_a_read_note_keeps_the_origins_of_its_author_and_counts_as_untrusted(
    first: ToolHarness, later: ToolHarness
) -> None:
    first.call(TOOL, **NEW)

    output = later.output(TOOL, command="search", query="licence")

    assert output.origins == (DOCUMENT, MODEL, "tool memory", USER)


def test_a_renamed_note_has_the_origins_of_the_handoff_that_chose_its_path(
    first: ToolHarness, later: ToolHarness
) -> None:
    """A path can hold words of a private document that the renaming handoff has seen."""
    first.context = replace(first.context, seen_origins=lambda: (USER,))
    first.call(TOOL, **NEW)
    later.call(TOOL, command="rename", old_path="qdrant/licence", new_path="qdrant/secret")

    output = first.output(TOOL, command="view")

    assert output.origins == (DOCUMENT, MODEL, "tool memory", USER)


def test_another_handoff_that_opens_a_found_note_has_read_something_private(
    first: ToolHarness, later: ToolHarness
) -> None:
    """The note may come from a private document, which the other handoff has not seen."""
    first.call(TOOL, **NEW)
    (note,) = notes_of(later, "licence")
    text = later.kept_documents[note["source"]][1]
    page = later.context.keep_document(note["source"], "text/plain", text)
    later.context = replace(later.context, load_fetched_pages=lambda: (page,))

    output = later.output(read_document_tool(), source=note["source"])

    assert output.origins == (DOCUMENT, MODEL, "tool memory")


def test_the_result_of_a_handoff_says_that_the_memory_was_full(
    first: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_notes, "MAX_NOTES", 0)
    tool = a_tool("memory", lambda _arguments: first.call(TOOL, **NEW))
    replies = (tool_call_reply(("memory", {"q": "Qdrant"})), answer_reply())

    result = run_with_replies(*replies, tools=(tool,)).go()

    assert result.notes == (
        "The memory is full (1,000 notes), so a new note was not kept: remove some"
        " (handoff memory delete PATH).",
    )


def test_the_error_of_another_tool_does_not_say_that_the_memory_was_full() -> None:
    def fail(_arguments: dict[str, Any]) -> str:
        raise ToolFailed(MEMORY_FULL)

    replies = (tool_call_reply(("look", {"q": "Qdrant"})), answer_reply())

    result = run_with_replies(*replies, tools=(a_tool("look", fail),)).go()

    assert result.notes == ()
