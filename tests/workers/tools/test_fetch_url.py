"""The tool `fetch_url` reads pages only from the public internet, also after redirects."""

from __future__ import annotations

import gzip
import shutil
import ssl
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.network.ssrf_guard import Resolver
from handoff_queue.workers.tools.fetch_url import Web, fetch_url_tool
from handoff_queue.workers.tools.read_document import MAX_CHARS
from handoff_queue.workers.tools.web_search import build_web_search_tool, limit_search_to_hosts
from tests.shared.documents.sample_files import pdf_with
from tests.workers.tools.contexts import ToolHarness, page_in
from tests.workers.tools.servers import Page, loopback_only, resolve_to_loopback, serving


def tool(
    resolver: Resolver = resolve_to_loopback, max_bytes: int = 100_000, max_seconds: float = 10.0
) -> Tool:
    return fetch_url_tool(
        Web(resolver=resolver, policy=loopback_only, max_bytes=max_bytes, max_seconds=max_seconds)
    )


def test_a_page_becomes_text_and_is_kept_as_a_source() -> None:
    harness = ToolHarness()
    with serving({"/a?b=1": Page("<title>T</title><p>Grüße</p>".encode())}) as server:
        url = f"http://site.example:{server.port}/a?b=1"
        answer = page_in(harness.call(tool(), url=f"{url}#part"))

    assert answer == {"source": url, "offset": 0, "total_chars": 10, "text": "# T\n\nGrüße"}
    assert harness.kept_documents == {url: ("text/html", "# T\n\nGrüße")}
    assert server.requests == [(f"site.example:{server.port}", "/a?b=1")]


def test_a_long_page_is_shown_in_part_and_kept_completely() -> None:
    harness = ToolHarness()
    with serving({"/": Page(b"x" * 50_000, "text/plain")}) as server:
        answer = page_in(harness.call(tool(), url=f"http://site.example:{server.port}/"))

    assert answer["total_chars"] == 50_000
    assert len(answer["text"]) == MAX_CHARS
    assert len(harness.kept_documents[answer["source"]][1]) == 50_000


def test_a_long_page_is_read_on_without_fetching_it_again() -> None:
    harness = ToolHarness()
    fetch = tool()
    text = "".join(chr(97 + position % 26) for position in range(MAX_CHARS + 5))
    with serving({"/": Page(text.encode(), "text/plain")}) as server:
        url = f"http://site.example:{server.port}/"
        first = page_in(harness.call(fetch, url=url))
        rest = page_in(harness.call(fetch, url=url, offset=MAX_CHARS))

    assert first["text"] + rest["text"] == text
    assert len(server.requests) == 1


@pytest.mark.slow
def test_a_pdf_is_read() -> None:
    with serving({"/x.pdf": Page(pdf_with("On paper"), "application/pdf")}) as server:
        assert (
            page_in(ToolHarness().call(tool(), url=f"http://site.example:{server.port}/x.pdf"))[
                "text"
            ]
            == "On paper"
        )


def test_redirects_are_followed_and_the_last_address_is_the_source() -> None:
    with serving(
        {"/a": Page(status=302, headers={"Location": "/b"}), "/b": Page(b"<p>here</p>")}
    ) as server:
        answer = page_in(ToolHarness().call(tool(), url=f"http://site.example:{server.port}/a"))

    assert answer["source"].endswith("/b")


def test_more_than_five_redirects_are_too_many() -> None:
    pages = {
        f"/{number}": Page(status=302, headers={"Location": f"/{number + 1}"})
        for number in range(9)
    }
    with serving(pages) as server:
        text = ToolHarness().failure(tool(), url=f"http://site.example:{server.port}/0")

    assert "more than 5 redirects" in text
    assert len(server.requests) == 6


def test_a_redirect_to_a_private_address_is_refused_before_it_is_reached() -> None:
    def resolver(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"] if host == "site.example" else ["10.0.0.1"]

    with serving({"/": Page(status=302, headers={"Location": "http://inside.example/"})}) as server:
        text = ToolHarness().failure(tool(resolver), url=f"http://site.example:{server.port}/")

    assert text == "refused: inside.example is not on the public internet"


def test_a_redirect_to_a_file_is_refused() -> None:
    with serving({"/": Page(status=302, headers={"Location": "file:///etc/passwd"})}) as server:
        assert "only http:// and https://" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_host_name_is_resolved_once_for_check_and_connection() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    with serving({"/": Page(b"<p>safe</p>")}) as server:
        answer = page_in(
            ToolHarness().call(
                tool(lambda _host, _port: answers.pop(0)),
                url=f"http://rebinding.example:{server.port}/",
            )
        )

    assert answer["text"] == "safe"
    assert answers == [["10.0.0.1"]]


def test_each_hop_to_the_same_name_is_checked_again() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    with serving({"/": Page(status=302, headers={"Location": "/next"})}) as server:
        text = ToolHarness().failure(
            tool(lambda _host, _port: answers.pop(0)),
            url=f"http://rebinding.example:{server.port}/",
        )

    assert "refused: rebinding.example" in text


def test_a_page_larger_than_the_limit_is_refused() -> None:
    with serving({"/": Page(b"x" * 200_000, "text/plain")}) as server:
        assert "larger than 0.1 MB" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_a_large_file_is_refused() -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    with serving({"/": Page(bomb, "text/plain", headers={"Content-Encoding": "gzip"})}) as server:
        assert "larger than 0.1 MB" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_page_is_read_although_the_server_compressed_it_unasked() -> None:
    with serving(
        {"/": Page(gzip.compress(b"plain"), "text/plain", headers={"Content-Encoding": "gzip"})}
    ) as server:
        assert (
            page_in(ToolHarness().call(tool(), url=f"http://site.example:{server.port}/"))["text"]
            == "plain"
        )


def test_a_slow_server_is_given_up_at_the_time_limit() -> None:
    started = time.monotonic()
    with serving({"/": Page(hangs=True)}) as server:
        text = ToolHarness().failure(
            tool(max_seconds=0.4), url=f"http://site.example:{server.port}/"
        )

    assert "took too long" in text
    assert time.monotonic() - started < 30, "the handoff has a minute left"


def test_the_handoffs_deadline_is_a_limit_too() -> None:
    with serving({"/": Page(hangs=True)}) as server:
        assert "took too long" in ToolHarness(remaining_s=0.3).failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "video/mp4"])
def test_a_non_text_page_is_refused(content_type: str) -> None:
    with serving({"/": Page(b"...", content_type)}) as server:
        assert "cannot be read as text" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_an_error_of_the_server_is_reported() -> None:
    with serving({}) as server:
        assert "answered 404" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/gone"
        )


def test_a_page_without_text_is_reported() -> None:
    with serving({"/": Page(b"<script>draw()</script>")}) as server:
        assert "holds no text" in ToolHarness().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_closed_port_is_reported() -> None:
    with serving({}) as server:
        port = server.port

    assert "does not answer" in ToolHarness().failure(tool(), url=f"http://site.example:{port}/")


def test_a_request_has_only_harmless_headers_and_uses_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving({"/": Page(b"<p>x</p>")}) as server:
        ToolHarness().call(tool(), url=f"http://site.example:{server.port}/")

    assert {name.lower() for name in server.request_headers[0]} == {
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "connection",
    }


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "only http:// and https://"),
        ("ftp://site.example/", "only http:// and https://"),
        ("site.example", "only http:// and https://"),
        ("", "only http:// and https://"),
        ("http://user:canary@site.example/", "user name or password"),
        ("http://site.example:22/", "port 22"),
        ("http://site.example:99999/", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://site.example/" + "x" * 2_000, "more than 1,000 characters"),
    ],
)
def test_an_address_that_is_not_a_page_is_refused(url: str, reason: str) -> None:
    text = ToolHarness().failure(tool(), url=url)

    assert reason in text
    assert "canary" not in text


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "0",
    ],
)
def test_the_real_tool_refuses_this_host_in_every_spelling(host: str) -> None:
    with serving({"/": Page(b"secret")}) as server:
        text = ToolHarness().failure(fetch_url_tool(), url=f"http://{host}:{server.port}/")

    assert "not on the public internet" in text
    assert server.requests == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_is_checked_against_the_requested_host_name(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=site.example",
        "-addext",
        "subjectAltName=DNS:site.example",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.create_default_context(cafile=str(certificate))
    web = Web(resolver=resolve_to_loopback, policy=loopback_only, tls=tls)

    with serving({"/": Page(b"<p>over TLS</p>")}, certificate=certificate, key=key) as server:
        answer = page_in(
            ToolHarness().call(fetch_url_tool(web), url=f"https://site.example:{server.port}/")
        )
        refused = ToolHarness().failure(
            fetch_url_tool(web), url=f"https://other.example:{server.port}/"
        )

    assert answer["text"] == "over TLS"
    assert "Hostname mismatch" in refused


def test_a_redirect_to_a_host_outside_of_the_list_asks_no_name_server() -> None:
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    harness = ToolHarness()
    harness.context = replace(harness.context, hosts=("site.example", "*.pages.example"))
    with serving(
        {
            "/a": Page(status=302, headers={"Location": "http://48713.evil.example/"}),
            "/b": Page(b"<p>here</p>"),
        }
    ) as server:
        fetch = tool(resolve)
        refused = harness.failure(fetch, url=f"http://site.example:{server.port}/a")
        harness.call(fetch, url=f"http://x.pages.example:{server.port}/b")

    assert refused == ("refused: 48713.evil.example is not in the list of hosts of this specialist")
    assert asked == ["site.example", "x.pages.example"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "host", ["evil-site.example", "site.example.evil.example", "pages.example"]
)
def test_a_host_that_resembles_a_listed_host_is_refused(host: str) -> None:
    harness = ToolHarness()
    harness.context = replace(harness.context, hosts=("site.example", "*.pages.example"))

    assert "not in the list of hosts" in harness.failure(tool(), url=f"http://{host}:8080/")


def test_a_search_finds_pages_of_the_listed_hosts_only() -> None:
    search = limit_search_to_hosts(build_web_search_tool(), ("b.example", "*.a.example"))

    assert search.server_param is not None
    assert search.server_param["allowed_domains"] == ["a.example", "b.example"]
