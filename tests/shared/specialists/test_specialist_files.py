"""A specialist's file is read, or refused with a one-line error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoff_queue.shared.specialists import load_specialists, read_specialist
from handoff_queue.shared.types.errors import InvalidSpecialist
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.names import RESERVED
from handoff_queue.shared.types.specialist import ContextManager, ContextRules, Tier

BODY = "You count words. Give the number, nothing else."


def front(
    fields: str = "",
    name: str = "counter",
    description: str = "Counts the words of a text. Not for writing.",
) -> str:
    return f"---\nname: {name}\ndescription: {description}\n{fields}---\n{BODY}\n"


def write_specialist(folder: Path, text: str, name: str = "counter.md") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path, tools: tuple[str, ...] | None = None) -> str:
    with pytest.raises(InvalidSpecialist) as refused:
        read_specialist(path, tools=tools)
    message = str(refused.value)
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_a_file_becomes_a_spec_with_its_body_as_instructions(tmp_path: Path) -> None:
    fields = (
        "model: claude-haiku-5-5\ntier: capable\ntools: [now]\nmax_turns: 3\nmax_output_tokens:"
        " 500\noutput_schema:\n  type: integer\n"
    )
    spec = read_specialist(write_specialist(tmp_path, front(fields)), tools={"now"})
    assert (spec.name, spec.model, spec.tier, spec.tools) == (
        "counter",
        "claude-haiku-5-5",
        Tier.CAPABLE,
        ("now",),
    )
    assert (spec.max_turns, spec.max_output_tokens, spec.output_schema) == (
        3,
        500,
        {"type": "integer"},
    )
    assert spec.instructions == BODY


@pytest.mark.parametrize(("where", "tool"), [("local", "run_code"), ("provider", "code_execution")])
def test_a_specialist_with_a_sandbox_has_the_tool_for_it(
    tmp_path: Path, where: str, tool: str
) -> None:
    fields = f"tools: [now]\nsandbox: {where}\n"
    spec = read_specialist(write_specialist(tmp_path, front(fields)), tools={"now"})

    assert spec.tools == ("now", tool)


@pytest.mark.parametrize("fields", ["", "sandbox: none\n", "sandbox:\n"])
def test_a_specialist_runs_no_code_by_default(tmp_path: Path, fields: str) -> None:
    assert read_specialist(write_specialist(tmp_path, front(fields))).tools == ()


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("sandbox: docker\n", "sandbox: 'docker' is unknown; write none, local or provider"),
        ("sandbox: yes\n", "sandbox: must be none, local or provider"),
        ("sandbox: [local]\n", "sandbox: ['local'] is unknown; write none, local or provider"),
        ("tools: [run_code]\n", "tools: run_code comes with `sandbox`; name it there"),
    ],
)
def test_a_faulty_sandbox_is_refused(tmp_path: Path, fields: str, fault: str) -> None:
    assert fault in refusal(write_specialist(tmp_path, front(fields)))


@pytest.mark.parametrize("time", ["90", "90s", "1m30s", "1.5m"])
def test_the_longest_time_of_a_handoff_may_have_units(tmp_path: Path, time: str) -> None:
    assert (
        read_specialist(write_specialist(tmp_path, front(f"max_seconds: {time}\n"))).max_seconds
        == 90
    )


def test_missing_fields_have_defaults_and_no_tools(tmp_path: Path) -> None:
    spec = read_specialist(write_specialist(tmp_path, front()))
    assert (spec.model, spec.tier, spec.tools, spec.output_schema) == (
        None,
        Tier.CHEAP,
        (),
        {"type": "string"},
    )


@pytest.mark.parametrize(
    "tools",
    [
        "now, read_document",
        "[now, read_document]",
        "\n  - now\n  - read_document",
        "now,read_document,",
    ],
)
def test_tools_may_be_a_list_or_names_with_commas(tmp_path: Path, tools: str) -> None:
    assert read_specialist(write_specialist(tmp_path, front(f"tools: {tools}\n"))).tools == (
        "now",
        "read_document",
    )


@pytest.mark.parametrize(
    ("alias", "tier"),
    [
        ("inherit", Tier.CHEAP),
        ("haiku", Tier.CHEAP),
        ("sonnet", Tier.CAPABLE),
        ("opus", Tier.CAPABLE),
    ],
)
def test_the_model_aliases_of_subagent_files_mean_a_tier(
    tmp_path: Path, alias: str, tier: Tier
) -> None:
    spec = read_specialist(write_specialist(tmp_path, front(f"model: {alias}\n")))
    assert (spec.model, spec.tier) == (None, tier)


def test_a_file_sets_effort_thinking_and_claims(tmp_path: Path) -> None:
    text = front("effort: low\nthinking: adaptive\nclaims: false\n")
    spec = read_specialist(write_specialist(tmp_path, text))
    assert (spec.effort, spec.thinking, spec.claims) == (Effort.LOW, Thinking.ADAPTIVE, False)


@pytest.mark.parametrize("models", ["a-model, b-model", "[a-model, b-model]"])
def test_a_file_names_several_models_in_order(tmp_path: Path, models: str) -> None:
    spec = read_specialist(write_specialist(tmp_path, front(f"models: {models}\n")))
    assert spec.models == ("a-model", "b-model")


def test_a_file_sets_when_results_are_cleared_and_turns_are_summarized(tmp_path: Path) -> None:
    text = front("context: {clear_tools_at: 60000, keep: 5, compact_at: 80000}\n")
    spec = read_specialist(write_specialist(tmp_path, text))
    assert spec.context == ContextRules(clear_tools_at=60_000, keep=5, compact_at=80_000)


def test_a_file_lets_the_provider_manage_the_context(tmp_path: Path) -> None:
    text = front("context: {managed_by: provider, clear_tools_at: 60000}\n")
    context = read_specialist(write_specialist(tmp_path, text)).context
    expected = ContextRules(managed_by=ContextManager.PROVIDER, clear_tools_at=60_000)
    assert context == expected
    assert context.is_managed_by_provider
    own = read_specialist(write_specialist(tmp_path, front("context: {managed_by: own}\n")))
    assert own.context is not None
    assert not own.context.is_managed_by_provider


def test_a_byte_order_mark_windows_lines_and_folded_text_are_taken(tmp_path: Path) -> None:
    text = "\ufeff" + front(
        description=">\n  Counts the words of a text.\n  Not for writing."
    ).replace("\n", "\r\n")
    path = tmp_path / "counter.md"
    path.write_bytes(text.encode())
    assert read_specialist(path).description == "Counts the words of a text. Not for writing."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ":1: no front matter; begin the file with a line `---`"),
        (BODY, ":1: no front matter"),
        ("---\nname: counter\n", ":1: the front matter does not end; close it with a line `---`"),
        ("---\n---\n" + BODY, ":2: the front matter holds no fields"),
        (
            front(description="Counts: words"),
            ":3: is not YAML (mapping values are not allowed here); put values",
        ),
        (front("tools: [now\n"), ":4: is not YAML"),
        (front("max_turns: 3\nmax_turns: 4\n"), ":5: 'max_turns' is given twice; remove one"),
        (
            front("a: &a x\nb: *a\n"),
            ":4: anchors and aliases (&a, *a) are not supported; write the value out",
        ),
        (front("a: " + "[" * 1_000 + "*x\n"), ":2: is nested too deeply; write it flatter"),
        (front("since: 2024-13-45\n"), ":2: the front matter has an invalid value (month must be"),
        (front("max_turn: 3\n"), ":4: max_turn: is not a known field; did you mean max_turns?"),
        (
            front("colour: red\n"),
            (
                ":4: colour: is not a known field; remove it (known: name, description, capability,"
                " model"
            ),
        ),
        (front("yes: 1\n"), ":2: True: is not a known field"),
        (
            "---\ndescription: Counts the words of a text.\n---\n" + BODY,
            ":1: name: is missing; add a line `name: ...`",
        ),
        (front(name="Word Counter"), ":2: name: must be lower-case letters"),
        (
            front(name="planner"),
            ":2: name: planner is reserved for the system itself; choose another name",
        ),
        (
            front(description="Counts."),
            ":3: description: must have at least 10 characters",
        ),
        (front("max_turns: many\n"), ":4: max_turns: must be a whole number"),
        (front("max_seconds: soon\n"), ":4: max_seconds: 'soon' is not a duration: write a number"),
        (front("max_seconds: 0s\n"), ":4: max_seconds: must be at least 1"),
        (front("max_turns: 0\n"), ":4: max_turns: must be at least 1"),
        (front("tier: huge\n"), ":4: tier: must be"),
        (front("effort: huge\n"), ":4: effort: must be"),
        (front("thinking: always\n"), ":4: thinking: must be"),
        (
            front("context: soon\n"),
            ":4: context: write clear_tools_at, keep, compact_at or managed_by below it",
        ),
        (front("context: {keep: -1}\n"), ":4: context: keep: must be at least 0"),
        (
            front("context: {clear_tools_at: 9000, compact_at: 8000}\n"),
            ":4: context: compact_at is 8000, below clear_tools_at, which is 9000",
        ),
        (
            front("context: {managed_by: nobody}\n"),
            ":4: context: managed_by: must be 'own' or 'provider'",
        ),
        (
            front("context: {colour: 5}\n"),
            ":4: context: colour: there is no such field: use one of clear_tools_at, keep,"
            " compact_at, managed_by; fix this field",
        ),
        (
            front("context: {clear_at: 5}\n"),
            ":4: context: clear_at: there is no such field: did you mean clear_tools_at?",
        ),
        (
            front("mcp: {weather: {comand: [server], tools: [a]}}\n"),
            ":4: mcp: weather.comand: there is no such field: did you mean command?",
        ),
        (front("model: [a]\n"), ":4: model: must be a text"),
        (front("models: [a]\n"), ":4: models: must have at least 2"),
        (front("models: [a, b, c, d, e]\n"), ":4: models: must have at most 4"),
        (front("models: [a, a]\n"), ":4: models: names a twice"),
        (front("models: [haiku, a]\n"), ":4: models: haiku is not a full name of a model"),
        (front("model: a\nmodels: [a, b]\n"), ":5: models: cannot be combined with `model`"),
        (front("tools: [1]\n"), ":4: tools.0: must be a text"),
        (front("tools: 3\n"), ":4: tools: must be a list"),
        (front("tools: now, now\n"), ":4: tools: a tool is named twice"),
        (
            front("output_schema:\n  type: strin\n"),
            ":4: output_schema: is not a JSON Schema ('strin' is not valid",
        ),
        (front("output_schema: text\n"), ":4: output_schema: must be a mapping of JSON values"),
        (
            front("output_schema:\n  const: 2026-01-01\n"),
            ":4: output_schema: must be a mapping of JSON values; quote dates",
        ),
        (
            front("output_schema:\n  pattern: (?=x)y\n"),
            ":4: output_schema: cannot be used: the pattern '(?=x)y' is not a regular expression",
        ),
        (
            front("output_schema:\n  $ref: http://x.example/s\n"),
            ":4: output_schema: refers to http://x.example/s, and nothing is fetched",
        ),
        (
            front("output_schema:\n  $ref: '#/$defs/none'\n"),
            ":4: output_schema: refers to #/$defs/none, which it does not have",
        ),
        (front().replace(BODY, " "), ":5: no instructions; write them below the front matter"),
        (
            front().replace(BODY, "Count."),
            ":5: instructions: must have at least 20 characters",
        ),
    ],
)
def test_an_error_is_one_line_with_file_line_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert refusal(write_specialist(tmp_path, text)).startswith(expected)


def test_a_call_needs_an_approval_only_of_a_tool_that_the_specialist_has(tmp_path: Path) -> None:
    text = front("tools: [now, send_mail]\nask: send_mail\n")
    assert read_specialist(write_specialist(tmp_path, text)).ask == ("send_mail",)

    wrong = write_specialist(tmp_path, front("tools: [now]\nask: [mow]\n"))
    assert refusal(wrong) == (":5: ask: mow is not a tool of this specialist; did you mean now?")


def test_an_unknown_tool_is_named_with_the_nearest_that_exists(tmp_path: Path) -> None:
    path = write_specialist(tmp_path, front("tools: search_document\n"))
    assert (
        refusal(path, ("search_documents", "now"))
        == ":4: tools: there is no tool search_document; did you mean search_documents?"
    )
    far = write_specialist(tmp_path, front("tools: Bash\n"))
    assert (
        refusal(far, ("now",))
        == ":4: tools: there is no tool Bash; add the folder of its file (known: now)"
    )


def test_everything_that_is_wrong_with_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_specialist(
        tmp_path,
        front("max_turns: 0\ntier: huge\ntools: [nwo, ls]\ncolour: red\n", name="Word Counter"),
    )

    message = refusal(path, ("now",)).split(f"; {path}")
    assert [problem.split(": ")[:2] for problem in message] == [
        [":2", "name"],
        [":4", "max_turns"],
        [":5", "tier"],
        [":6", "tools"],
        [":6", "tools"],
        [":7", "colour"],
    ]


def test_a_wrong_value_is_named_once_with_its_rule(tmp_path: Path) -> None:
    path = write_specialist(tmp_path, front("tier: huge\n", name="Word Counter"))

    assert refusal(path) == (
        ":2: name: must be lower-case letters, digits, `-` and `_`, and begin with a letter"
        " (at most 48 characters), not 'Word Counter'; fix this field;"
        f" {path}:4: tier: must be one of capable, cheap, not 'huge'; fix this field"
    )


def test_each_fault_of_a_file_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = write_specialist(tmp_path, front("tier: huge\nmax_turns: many\n"))

    with pytest.raises(InvalidSpecialist) as refused:
        load_specialists(path.parent)

    first, second = refused.value.lines
    assert first.startswith(f"{path}:4: tier: must be one of")
    assert second.startswith(f"{path}:5: max_turns: must be a whole number, not 'many'")


@pytest.mark.parametrize("name", RESERVED)
def test_no_specialist_takes_a_name_of_the_system(tmp_path: Path, name: str) -> None:
    assert "is reserved" in refusal(write_specialist(tmp_path, front(name=name)))


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    junk = tmp_path / "junk.md"
    junk.write_bytes(b"---\nname: \xff\xfe")
    assert "is not UTF-8 text (byte 10); save it as UTF-8" in refusal(junk)
    assert "cannot be read (No such file or directory)" in refusal(tmp_path / "none.md")
    assert "larger than 200,000 bytes" in refusal(
        write_specialist(tmp_path, front() + "x" * 200_000)
    )


def test_a_later_folder_overrides_an_earlier_one_by_name(tmp_path: Path) -> None:
    first_folder, second_folder = tmp_path / "ours", tmp_path / "theirs"
    first_folder.mkdir()
    second_folder.mkdir()
    write_specialist(first_folder, front())
    write_specialist(first_folder, front(name="adder"), "adder.md")
    write_specialist(second_folder, front("max_turns: 2\n"), "my-own.md")
    loaded = load_specialists(first_folder, second_folder)
    assert list(loaded) == ["adder", "counter"]
    assert loaded["counter"].max_turns == 2


def test_a_name_twice_within_a_folder_is_refused_with_both_files(tmp_path: Path) -> None:
    first, second = (
        write_specialist(tmp_path, front(), "a.md"),
        write_specialist(tmp_path, front(), "b.md"),
    )
    with pytest.raises(InvalidSpecialist) as refused:
        load_specialists(tmp_path)
    assert (
        str(refused.value)
        == f"{second}: name: counter is taken by {first}; rename or remove one of the two"
    )


def test_a_readme_and_hidden_files_are_not_specialists(tmp_path: Path) -> None:
    write_specialist(tmp_path, "# About this folder", "README.md")
    write_specialist(tmp_path, "junk", ".hidden.md")
    write_specialist(tmp_path, front(), "counter.md")
    assert list(load_specialists(tmp_path)) == ["counter"]


@pytest.mark.parametrize("name", ["README.md", ".hidden.md", "counter.txt"])
def test_a_folder_without_a_specialist_is_refused(tmp_path: Path, name: str) -> None:
    write_specialist(tmp_path, front(), name)
    with pytest.raises(InvalidSpecialist, match=f"^{tmp_path}: has no specialist: write a file"):
        load_specialists(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecialist, match="no such folder; name a folder of Markdown files"):
        load_specialists(tmp_path / "nowhere")


def test_a_pipe_is_not_a_specialist_and_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.md")

    assert refusal(tmp_path / "b.md") == ": is not a regular file; take it out of the folder"


def test_a_suffix_in_capitals_is_read(tmp_path: Path) -> None:
    write_specialist(tmp_path, front(), "COUNTER.MD")

    assert list(load_specialists(tmp_path)) == ["counter"]


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("tools: [now]\nask: now", "share: cannot be combined with `ask`"),
        ("runner: agent-sdk", "share: cannot be combined with `runner`"),
        ("tools: [now, memory]", "share: cannot be combined with the tool memory"),
        ("celery_task: shop.enrich", "share: has no effect with celery_task"),
    ],
)
def test_a_specialist_whose_runs_cannot_be_shared_says_so(
    tmp_path: Path, field: str, problem: str
) -> None:
    file = write_specialist(tmp_path, front(f"{field}\nshare: true\n"))

    assert problem in "".join(refusal(file))
