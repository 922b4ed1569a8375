"""Text that a person cannot see does not reach a model, and text that a terminal obeys does not
reach a terminal.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from handoff_queue.shared.documents.folder import read_folder
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.presence import Announcement, ModelCalls
from handoff_queue.supervisor.cli.display.answer import build_account
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    Reply,
    answer_properties,
    json_reply,
    result_reply,
    tool_call_reply,
)
from tests.doubles.handoffs import a_spec, a_tool
from tests.hostile.obedient_system import ObedientSystem, obedient_system

ORDER = "obey"
BITS = "".join(f"{ord(letter):08b}" for letter in ORDER)


def coded(zero_character: str, one_character: str) -> str:
    """Return the order as invisible characters, one for each bit."""
    return "".join(one_character if bit == "1" else zero_character for bit in BITS)


CHARACTERS = {
    "tags": "".join(chr(0xE0000 + ord(letter)) for letter in ORDER),
    "zero-width spaces and joiners": coded("\u200b", "\u200d"),
    "joiners and non-joiners": coded("\u200c", "\u200d"),
    "word joiners": coded("\u2060", "\u2063"),
    "byte order marks": coded("\ufeff", "\u2061"),
    "soft hyphens": coded("\u00ad", "\u034f"),
    "variation selectors": coded("\ufe00", "\ufe01"),
    "selectors of emoji": coded("\ufe0e", "\ufe0f"),
    "variation selectors of the supplement": coded("\U000e0100", "\U000e0101"),
    "direction marks": coded("\u200e", "\u200f"),
    "overrides of the direction": "\u202eyebo\u202c",
    "isolates": coded("\u2066", "\u2069"),
    "fillers": coded("\u3164", "\uffa0"),
    "blanks of Braille": "\u2800" * 8,
    "separators of Mongolian": coded("\u180b", "\u180e"),
    "annotations": f"\ufff9x\ufffa{BITS}\ufffb"[:1] * 8,
}
ELEMENTS = (
    f"<p hidden>{ORDER}</p>",
    f"<p style='display:none'>{ORDER}</p>",
    f"<div style='color:red; visibility: hidden'><p>{ORDER}</p></div>",
    f"<span style='font-size:0'>{ORDER}</span>",
    f"<span style='font-size: 0px;'>{ORDER}</span>",
    f"<span style='OPACITY:0.0'>{ORDER}</span>",
    f"<div style='height:0;overflow:hidden'>{ORDER}</div>",
    f"<!-- {ORDER} -->",
    f"<template>{ORDER}</template>",
    f"<noscript>{ORDER}</noscript>",
    f"<meta name='description' content='{ORDER}'>",
    f"<img alt='{ORDER}' title='{ORDER}'>",
)


@pytest.mark.parametrize("kind", CHARACTERS)
@pytest.mark.parametrize("name", ["a.md", "a.html", "a.csv"])
def test_invisible_characters_of_a_document_are_left_out(
    tmp_path: Path, kind: str, name: str
) -> None:
    (tmp_path / name).write_text(f"The price{CHARACTERS[kind]} is 3 euros.")

    (text,) = read_folder(tmp_path).texts.values()

    assert text.strip() in ("The price is 3 euros.", "The priceyebo is 3 euros.")


@pytest.mark.parametrize("element", ELEMENTS)
def test_hidden_elements_of_a_page_are_left_out(tmp_path: Path, element: str) -> None:
    page = f"<html><body><p>The price is</p>{element}<p>3 euros.</p></body></html>"
    (tmp_path / "a.html").write_text(page)

    (text,) = read_folder(tmp_path).texts.values()

    assert ORDER not in text
    assert "3 euros." in text


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧 ❤️ 👍🏽",
        "می‌خواهم",
        "क्‍ष",
        "שלום \u200f(abc)\u200e",
        "日本語",
        "a\u0301",
    ],
)
def test_characters_that_a_script_needs_stay(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)

    assert list(read_folder(tmp_path).texts.values()) == [text]


@pytest.mark.parametrize("style", ["opacity:0.5", "font-size:0.8em", "height:0.5em", "color:red"])
def test_elements_that_a_reader_sees_stay(tmp_path: Path, style: str) -> None:
    (tmp_path / "a.html").write_text(f"<html><body><p style='{style}'>seen</p></body></html>")

    assert list(read_folder(tmp_path).texts.values()) == ["seen"]


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    def call_and_answer(request: Json) -> Reply:
        if "route" in answer_properties(request):
            return json_reply({"route": "single", "specialist": "generalist", "why": ""})
        if len(request["messages"]) == 1:
            return tool_call_reply(*((name, {"q": "all"}) for name in ("one", "two")))
        return result_reply("Done.", model="\x1b]0;owned\x07model\x9b31m\u202e")

    with obedient_system(redis_url, call_and_answer) as running:
        yield running


def test_invisible_characters_of_a_tool_result_do_not_reach_the_model(
    system: ObedientSystem,
) -> None:
    hidden = "".join(CHARACTERS.values())
    system.offer(
        *(a_tool(name, lambda _arguments: f"It is{hidden} so.") for name in ("one", "two"))
    )

    system.run(system.shell.jobs.submit(Request("Look around.", mode=Mode.SINGLE)))

    assert system.tool_results() == ["It isyebo so."] * 2


def test_a_name_from_the_model_server_cannot_change_a_terminal(system: ObedientSystem) -> None:
    system.offer(*(a_tool(name, lambda _arguments: "x") for name in ("one", "two")))
    job_id = system.shell.jobs.submit(Request("Look around.", mode=Mode.SINGLE))
    system.run(job_id)

    result = system.shell.jobs.result(job_id, wait_s=1)
    screen = io.StringIO()
    Console(file=screen, force_terminal=False).print(build_account(result, is_private=False))

    assert "model" in screen.getvalue()
    assert not {*"\x1b\x07\x9b\u202e"} & {*screen.getvalue(), *str(result.model)}


def test_an_announcement_of_another_program_has_no_text_that_a_terminal_obeys(
    store: Store,
) -> None:
    escape = "\x1b[2J\x9b31m\u202e\n"
    store.presence.announce(
        Announcement.model_construct(
            worker="w1",
            specialists=(a_spec(),),
            slots=1,
            node=f"n{escape}",
            version=escape,
            model=escape,
            server=escape,
            models={f"researcher{escape}": escape},
            calls=(ModelCalls.model_construct(model=escape, error=escape),),
        )
    )

    (read,) = store.presence.read_announcements()

    (calls,) = read.calls
    printed = [read.node, read.version, read.model, read.server, calls.model, calls.error]
    printed += [*read.models, *read.models.values()]
    assert not {*"\x1b\x9b\u202e\n"} & {*"".join(printed)}
