"""No text of a user, a document or a model becomes a part of a page of the console."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.serve.console.visitor import Visitor

MARK = "owned"
TEXTS = (
    f"<script>{MARK}()</script>",
    f"</title><script>{MARK}()</script>",
    f"</textarea></pre></script><script>{MARK}()</script>",
    f"<img src=x onerror={MARK}()>",
    f"<svg/onload={MARK}()>",
    f'" autofocus onfocus={MARK}() x="',
    f"' onmouseover='{MARK}()",
    f"`onclick={MARK}()",
    f"<a href=javascript:{MARK}()>x</a>",
    f"[x](javascript:{MARK}())",
    f"[x](data:text/html;base64,{MARK})",
    f"![x](http://127.0.0.1:9/{MARK})",
    f"<iframe srcdoc='{MARK}'></iframe>",
    f"<base href=http://127.0.0.1:9/{MARK}>",
    f"<meta http-equiv=refresh content='0;url=http://{MARK}'>",
    f"<form action=http://{MARK}><button>x",
    f"<style>@import '//{MARK}'</style>",
    f"<!--><script>{MARK}()</script>-->",
    f"&lt;script&gt;{MARK}()&lt;/script&gt;",
    f"{{{{ {MARK} }}}} {{% include '{MARK}' %}}",
    f"\ufeff<scr\0ipt>{MARK}()</script>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={MARK}()>",
)


class Page(HTMLParser):
    """The elements of a page that carry the mark in a tag, in an attribute or in a script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.owned: list[str] = []
        self._element = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element = tag
        for name, value in attrs:
            is_active = name.startswith("on") or name in (
                "href",
                "src",
                "srcdoc",
                "action",
                "style",
            )
            if is_active and MARK in (value or ""):
                self.owned.append(f"{tag} {name}={value}")
            if MARK in name:
                self.owned.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._element in ("script", "style") and MARK in data:
            self.owned.append(f"{self._element}: {data[:80]}")

    def handle_endtag(self, tag: str) -> None:
        self._element = ""


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_a_request_is_text_on_each_page(jobs: Client, local: Visitor, text: str) -> None:
    job_id = jobs.submit(Request(f"Say {text}", tenant="acme"))

    named = quote(text)
    for path in ("/", f"/jobs/{job_id}", "/jobs/new", f"/jobs?tenant={named}", f"/?q={named}"):
        page = local.get(path)
        assert page.status_code < 500
        assert not Page(page.text).owned


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_an_address_is_text_on_the_page_of_an_error(http: TestClient, text: str) -> None:
    named = quote(text)
    for path in (f"/jobs/{named}", f"/{named}", f"/v1/jobs/{named}", f"/login?next={named}"):
        page = http.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
        assert page.status_code < 500
        if "html" in page.headers.get("content-type", ""):
            assert not Page(page.text).owned


def test_an_element_of_an_attack_is_seen() -> None:
    seen = [text for text in TEXTS if Page(f"<p>{text}</p>").owned]

    assert len(seen) > 8
