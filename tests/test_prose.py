"""Docstrings, comments, messages, docs and prompts are plain English: short sentences without
banned phrases. Messages are error messages, log lines and help texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ROOMS = ("shared", "supervisor", "workers", "chaos", "benchmarks", "handoff_queue", "tests")
PRODUCT = ("shared", "supervisor", "workers", "chaos", "handoff_queue")
"""Folders whose messages are read."""
PROMPTS = ("supervisor/roles", "supervisor/workflows", "workers/specialists", "chaos/specialists")
"""Folders with the instructions of roles and specialists, and with workflows."""
MAX_WORDS = 25
"""Longest sentence, in words (docs/contributing.md)."""
MIN_WORDS_OF_MESSAGE = 5
"""A shorter literal is a name or a part of a sentence."""

BANNED = {
    "a clause in place of a noun": (
        r"\bwhat (?:is|are|was|were|has|have|had|it|they|can|could|may|must|comes?|came|stands?"
        r"|follows?|does|did|ends?|runs?|waits?|needs?|belongs?|goes|went|would|will|we|you|one"
        r"|else|others?|both|each)\b(?![^.]{0,120}\?)"
    ),
    "`who` as a subject": (
        r"(?:^|[.;:(] ?|\band |\bor |\bof |\bfor |\bby |\bto )(?:who|whoever|whom|whomever)\b"
    ),
    "a pronoun without its noun": (
        r"(?<!the )\bones? that\b|\b(?:none that|none of|those that|those who|that of|of it|of them"
        r"|of theirs|of ours)\b|\bof (?:(?:its|their|his) own|these|those)(?! \w)"
    ),
    "an archaic word": (
        r"\b(?:anew|whatever|whichever|thereof|therein|wherein|whereby|hence|beside|meanwhile"
        r"|nobody|somebody|is to be|are to be|was to be|lest|likewise|as yet)\b"
    ),
    "`is no` in place of `is not a`": (
        r"(?<!there )(?<!where )\b(?:is|are|was|were) no (?!longer|more|one\b)\w"
    ),
    "`stands in` or `behind` for the place of a text": (
        r"\bstands? (?:in\b(?! for)|there\b|whole\b|word for word)"
        r"|\b(?:index|texts?|block|entry|entries|comma|words?|quote|number|marker|line) behind\b"
    ),
    "a fragment": (
        r"^(?:Of|For|With|By|In|On|To|As|From|Whether|Why|How|Where)(?: [^.,: ]+){1,4}[.;]?$"
    ),
}
PATTERNS = {
    name: re.compile(pattern, re.NOFLAG if name == "a fragment" else re.IGNORECASE)
    for name, pattern in BANNED.items()
}
BAD_NAME = re.compile(
    r"def (test_(?:\w+_)?(?:what|whoever|whatever|whichever|nobody|somebody|anew|beside"
    r"|meanwhile|hence|one_that|one_who|those_that|those_who|is_said|are_said"
    r"|(?<!there_)(?<!where_)(?:is|are|was|were)_no_(?!longer|more)[a-z]+)"
    r"(?:_\w+)?)\("
)
"""Names of tests are sentences, so the most frequent banned words are banned there too."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`(*\d\"])")
PART_END = re.compile(r"(?<=[.!?:;])\s+")
"""End of a part of a message, such as `there is no job x: see handoff list`."""
NO_MESSAGE = re.compile(r"\(\?|\blocal \w+ =|^[\w\s-]{120,}$|^\s*\|")
"""A regular expression, a Lua script, a list of words, or a table."""
SECTION = re.compile(r"\n\s*(?:Args|Raises|Returns|Yields|Attributes):")
ENTRY = re.compile(r"^    (?=\S)", re.MULTILINE)
"""Indentation of an entry of a section, such as `    name: text`."""
COMMENT = re.compile(r"(?:[^#]*\S  |\s*)#+ ?(.+)")
DIRECTIVE = ("noqa", "type:", "pragma", "fmt:", "!")
LONG_STRING = re.compile(r"(\"{3}|'{3})(?:\\.|.)*?\1", re.DOTALL)
NO_PARAGRAPH = re.compile(r"```.*?```|<!--.*?-->|^---\n.*?\n---\n", re.DOTALL | re.MULTILINE)
NO_PROSE = ("#", "|", ">", "├", "│", "└")
LIST_ITEM = re.compile(r"^(?:[-*+]|\d+\.)\s+")

Text = tuple[int, str]
"""Line of the first word, and the text."""


def docstrings(scope: ast.Module | ast.stmt) -> Iterator[Text]:
    """Yield the paragraphs of docstrings, also below constants and fields."""
    for item in getattr(scope, "body", []):
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
            text = item.value.value
            if isinstance(text, str):
                for line, paragraph in paragraphs_of_docstring(cleandoc(text)):
                    yield item.lineno + line - 1, paragraph
        elif hasattr(item, "body"):
            yield from docstrings(item)


def paragraphs_of_docstring(text: str) -> Iterator[Text]:
    """Yield the paragraphs, and each entry of the sections such as `Args:`."""
    head = SECTION.split(text)[0]
    sections = ENTRY.sub("- ", blanked(SECTION, text[len(head) :]))
    yield from paragraphs(head + sections)


def comments(source: str) -> Iterator[Text]:
    """Yield comments. Consecutive lines with only a comment are one comment.

    Regular expressions find comments ten times faster than `tokenize`.
    """
    source = blanked(LONG_STRING, source)
    first, last, words = 0, -1, list[str]()
    for number, line in enumerate(source.splitlines(), start=1):
        match = COMMENT.match(line)
        if match is None or match[1].startswith(DIRECTIVE):
            continue
        is_alone = line.lstrip().startswith("#")
        if number != last + 1 or not is_alone:
            yield first, " ".join(words)
            first, words = number, []
        last = number if is_alone else -1
        words.append(match[1])
    yield first, " ".join(words)


def messages(tree: ast.Module) -> Iterator[Text]:
    """Yield the string literals of a module that are sentences: error messages, log lines, help
    texts and prompts. `VALUE` stands for each value of an f-string.
    """
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        text: object = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)  # a docstring
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            text = "".join(part_of(value) for value in node.values)
        elif isinstance(node, ast.Constant) and node not in skipped:
            text = node.value
        if not isinstance(text, str) or len(text.split()) < MIN_WORDS_OF_MESSAGE:
            continue
        if not NO_MESSAGE.search(text):
            yield getattr(node, "lineno", 0), text


def part_of(value: ast.expr) -> str:
    """Return a part of an f-string."""
    return str(value.value) if isinstance(value, ast.Constant) else "VALUE"


def strings_in(value: object) -> Iterator[str]:
    """Yield all texts in the content of a YAML file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from strings_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from strings_in(member)


def yaml_texts(source: str) -> Iterator[Text]:
    """Yield the texts of a YAML file, or of the front matter of a Markdown file, with line 1."""
    parts = re.split(r"^---\n", source, maxsplit=2, flags=re.MULTILINE)
    for text in strings_in(yaml.safe_load(parts[1] if len(parts) == 3 else source)):
        yield 1, text


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """Remove the matches of a pattern, and keep the numbers of the lines."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def paragraphs(markdown: str) -> Iterator[Text]:
    """Yield paragraphs and list items, without code blocks, tables, headings and quotations."""
    markdown = blanked(NO_PARAGRAPH, markdown)
    first, words = 1, list[str]()
    for number, line in enumerate([*markdown.split("\n"), ""], start=1):
        text = line.strip()
        is_code = line.startswith("    ") and not words
        is_prose = bool(text) and not is_code and not text.startswith(NO_PROSE)
        if words and (not is_prose or LIST_ITEM.match(text)):
            yield first, " ".join(words)
            words = []
        if is_prose:
            first = first if words else number
            words.append(LIST_ITEM.sub("", text))


def sentences(text: str) -> Iterator[str]:
    text = re.sub(r"``[^`]*``|`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*_]{1,2}([^*_]+)[*_]{1,2}", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in SENTENCE_END.split(" ".join(paragraph.split())):
            if len(sentence.split()) > 2:
                yield sentence


def problems(sentence: str) -> list[str]:
    names = [name for name, pattern in PATTERNS.items() if pattern.search(sentence)]
    count = len(sentence.split())
    if count > MAX_WORDS:
        names.append(f"{count} words")
    return names


def problems_in(path: Path, source: str, tree: ast.Module | None = None) -> Iterator[str]:
    """Yield the problems of a file's text, each with its place and its sentence.

    Args:
        tree: the parsed source of a module. None: parse it.
    """
    if path.suffix == ".yaml":
        texts = list(yaml_texts(source))
    elif path.suffix == ".md":
        texts = list(paragraphs(source))
        if source.startswith("---\n"):
            texts += yaml_texts(source)
    else:
        texts = [*docstrings(tree or ast.parse(source)), *comments(source)]
    for line, text in texts:
        for sentence in sentences(text):
            yield from described(path, line, sentence)


def problems_in_messages(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the problems of a module's messages, each with its place and its sentence."""
    for line, text in messages(tree):
        for sentence in PART_END.split(" ".join(re.sub(r"`[^`]*`", "CODE", text).split())):
            yield from described(path, line, sentence)


def described(path: Path, line: int, sentence: str) -> Iterator[str]:
    if problems_found := problems(sentence):
        place = f"{path.relative_to(ROOT)}:{line}"
        yield f"{place}: {', '.join(problems_found)}: {sentence}"


def files_of(room: str) -> list[Path]:
    if room == "docs":
        return [
            *sorted(ROOT.glob("*.md")),
            *sorted((ROOT / "docs").rglob("*.md")),
            *(ROOT / folder / "RESULTS.md" for folder in ("benchmarks", "chaos")),
        ]
    if room == "prompts":
        return [
            path
            for folder in PROMPTS
            for path in sorted((ROOT / folder).iterdir())
            if path.suffix in (".md", ".yaml")
        ]
    return sorted((ROOT / room).rglob("*.py"))


@cache
def problems_of(room: str) -> tuple[list[str], list[str]]:
    """Read and parse each file of a room once. Return the problems of its texts, and of its
    messages.
    """
    of_texts: list[str] = []
    of_messages: list[str] = []
    for path in files_of(room):
        source = path.read_text()
        tree = ast.parse(source) if path.suffix == ".py" else None
        of_texts += problems_in(path, source, tree)
        if tree is not None and room in PRODUCT:
            of_messages += problems_in_messages(path, tree)
    return of_texts, of_messages


@pytest.mark.parametrize("room", [*ROOMS, "docs", "prompts"])
def test_texts_are_plain_english(room: str) -> None:
    problems_found, _ = problems_of(room)

    assert not problems_found, "\n".join(problems_found)


@pytest.mark.parametrize("room", PRODUCT)
def test_messages_are_plain_english(room: str) -> None:
    """Error messages, log lines, help texts and prompts in the code."""
    _, problems_found = problems_of(room)

    assert not problems_found, "\n".join(problems_found)


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('raise UserError(f"{name} is unknown: write what you want")', True),
        ('raise UserError(f"{name} is unknown: write a known name")', False),
        ('log.info("the worker ended " "all of them today")', True),
        ('typer.Option(help="Only ended jobs, and the reason of it.")', True),
        (f'LIMIT = "{"word " * 26}."', True),
        (f'WORDS = "{"word " * 40}"', False),
        ('"""What is due, in a docstring."""', False),
    ],
)
def test_a_bad_message_is_found(code: str, is_found: bool) -> None:
    assert bool(list(problems_in_messages(ROOT / "a.py", ast.parse(code)))) == is_found


def test_the_texts_of_a_workflow_and_of_a_front_matter_are_read() -> None:
    bad = "Write what is due."

    assert list(problems_in(ROOT / "a.yaml", f"steps: [{{id: a, task: {bad}}}]\n"))
    assert list(problems_in(ROOT / "a.md", f"---\ndescription: {bad}\n---\nGood text.\n"))


def test_names_of_tests_are_plain_english() -> None:
    problems_found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files_of("tests")
        for name in BAD_NAME.findall(path.read_text())
    ]

    assert not problems_found, "\n".join(problems_found)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return what is due now.",
        "A process of whoever asked.",
        "The first of them is taken.",
        "Start the worker anew.",
        "For a job that waits.",
        "The job is no fork.",
        "word " * 26,
    ],
)
def test_a_bad_sentence_is_found(sentence: str) -> None:
    assert problems(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the due jobs.",
        "A supervisor with no free role slot waits 20 ms before it delegates.",
        "For a job that waits, return the reason.",
        "What is a lease?",
        "There is no job, so the worker is no longer busy.",
        "word " * 25,
    ],
)
def test_a_good_sentence_is_accepted(sentence: str) -> None:
    assert not problems(sentence)


LONG = f"A {'word ' * 25}."


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.md", LONG),
        ("a.md", f"Text: {LONG}"),
        ("a.py", f'"""{LONG}"""'),
        ("a.py", f"# {LONG}"),
        ("a.py", f'"""Text.\n\nArgs:\n    a: {LONG}\n"""'),
        ("a.py", f'def f():\n    """Text.\n\n    Raises:\n        E: {LONG}\n    """'),
        ("a.yaml", f"task: {LONG}"),
    ],
)
def test_a_sentence_of_more_than_25_words_is_found_everywhere(path: str, source: str) -> None:
    assert len(list(problems_in(ROOT / path, source))) == 1


def test_each_entry_of_a_section_is_read_alone() -> None:
    entry = f"A {'word ' * 20}"
    source = f'"""Text.\n\nArgs:\n    a: {entry}\n        more.\n    b: {entry}\n"""'

    assert not list(problems_in(ROOT / "a.py", source))
    assert [line for line, _ in docstrings(ast.parse(source))] == [1, 4, 6]


def test_each_text_has_the_line_of_its_first_word() -> None:
    source = (
        '"""Module."""\nX = 1\n"""Constant."""\n# One\n# comment.\n\nY = """\n# no comment\n"""\nZ'
        " = 2  # Tail.\n"
    )
    markdown = "# Title\n\nOne\ntwo.\n- Item\n  three.\n```\ncode\n```\nLast.\n"

    assert list(docstrings(ast.parse(source))) == [(1, "Module."), (3, "Constant.")]
    assert list(comments(source))[1:] == [(4, "One comment."), (10, "Tail.")]
    assert list(paragraphs(markdown)) == [(3, "One two."), (5, "Item three."), (10, "Last.")]
