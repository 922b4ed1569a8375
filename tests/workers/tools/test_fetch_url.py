"""Pages come only from the public internet, for all names, redirects and name servers."""

from __future__ import annotations

import gzip
import json
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.workers.tools.fetch_url import MOST_CHARS, Web, fetch_url_tool
from handoff_queue.workers.tools.pinned_http import Resolver
from tests.shared.documents.building import pdf_saying
from tests.workers.tools.contexts import Desk
from tests.workers.tools.servers import Page, always_here, loopback_only, serving


def tool(
    resolver: Resolver = always_here, max_bytes: int = 100_000, max_seconds: float = 10.0
) -> Tool:
    return fetch_url_tool(
        Web(resolver=resolver, policy=loopback_only, max_bytes=max_bytes, max_seconds=max_seconds)
    )


def test_a_page_becomes_text_and_is_kept_to_be_cited() -> None:
    desk = Desk()
    with serving({"/a?b=1": Page("<title>T</title><p>Grüße</p>".encode())}) as server:
        url = f"http://site.example:{server.port}/a?b=1"
        answer = json.loads(desk.call(tool(), url=f"{url}#part"))

    assert answer == {"source": url, "offset": 0, "total_chars": 10, "text": "# T\n\nGrüße"}
    assert desk.kept == {url: ("text/html", "# T\n\nGrüße")}
    assert server.asked == [(f"site.example:{server.port}", "/a?b=1")]


def test_a_long_page_is_shown_in_part_and_kept_completely() -> None:
    desk = Desk()
    with serving({"/": Page(b"x" * 50_000, "text/plain")}) as server:
        answer = json.loads(desk.call(tool(), url=f"http://site.example:{server.port}/"))

    assert answer["total_chars"] == 50_000
    assert len(answer["text"]) == MOST_CHARS
    assert len(desk.kept[answer["source"]][1]) == 50_000


def test_a_long_page_is_read_on_without_fetching_it_again() -> None:
    desk = Desk()
    reading = tool()
    text = "".join(chr(97 + position % 26) for position in range(MOST_CHARS + 5))
    with serving({"/": Page(text.encode(), "text/plain")}) as server:
        url = f"http://site.example:{server.port}/"
        first = json.loads(desk.call(reading, url=url))
        rest = json.loads(desk.call(reading, url=url, offset=MOST_CHARS))

    assert first["text"] + rest["text"] == text
    assert len(server.asked) == 1


def test_a_pdf_is_read() -> None:
    with serving({"/x.pdf": Page(pdf_saying("On paper"), "application/pdf")}) as server:
        assert (
            json.loads(Desk().call(tool(), url=f"http://site.example:{server.port}/x.pdf"))["text"]
            == "On paper"
        )


def test_redirects_are_followed_and_the_last_address_is_the_source() -> None:
    with serving(
        {"/a": Page(status=302, headers={"Location": "/b"}), "/b": Page(b"<p>here</p>")}
    ) as server:
        answer = json.loads(Desk().call(tool(), url=f"http://site.example:{server.port}/a"))

    assert answer["source"].endswith("/b")


def test_more_than_five_redirects_are_too_many() -> None:
    pages = {
        f"/{number}": Page(status=302, headers={"Location": f"/{number + 1}"})
        for number in range(9)
    }
    with serving(pages) as server:
        text = Desk().failure(tool(), url=f"http://site.example:{server.port}/0")

    assert "more than 5 redirects" in text
    assert len(server.asked) == 6


def test_a_redirect_to_a_private_address_is_refused_before_it_is_reached() -> None:
    def resolver(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"] if host == "site.example" else ["10.0.0.1"]

    with serving({"/": Page(status=302, headers={"Location": "http://inside.example/"})}) as server:
        text = Desk().failure(tool(resolver), url=f"http://site.example:{server.port}/")

    assert text == "refused: inside.example is not on the public internet"


def test_a_redirect_to_a_file_is_refused() -> None:
    with serving({"/": Page(status=302, headers={"Location": "file:///etc/passwd"})}) as server:
        assert "only http:// and https://" in Desk().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_name_is_resolved_once_so_a_second_answer_cannot_redirect() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    with serving({"/": Page(b"<p>safe</p>")}) as server:
        answer = json.loads(
            Desk().call(
                tool(lambda _host, _port: answers.pop(0)),
                url=f"http://rebinding.example:{server.port}/",
            )
        )

    assert answer["text"] == "safe"
    assert answers == [["10.0.0.1"]]


def test_each_hop_to_the_same_name_is_checked_again() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    with serving({"/": Page(status=302, headers={"Location": "/next"})}) as server:
        text = Desk().failure(
            tool(lambda _host, _port: answers.pop(0)),
            url=f"http://rebinding.example:{server.port}/",
        )

    assert "refused: rebinding.example" in text


def test_a_page_larger_than_the_cap_is_given_up() -> None:
    with serving({"/": Page(b"x" * 200_000, "text/plain")}) as server:
        assert "larger than 0.1 MB" in Desk().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_small_file_that_unpacks_to_a_large_one_is_given_up() -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    with serving({"/": Page(bomb, "text/plain", headers={"Content-Encoding": "gzip"})}) as server:
        assert "larger than 0.1 MB" in Desk().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_a_compressed_page_is_read_although_it_was_not_asked_for() -> None:
    with serving(
        {"/": Page(gzip.compress(b"plain"), "text/plain", headers={"Content-Encoding": "gzip"})}
    ) as server:
        assert (
            json.loads(Desk().call(tool(), url=f"http://site.example:{server.port}/"))["text"]
            == "plain"
        )


def test_a_server_that_drips_is_left_when_time_is_up() -> None:
    started = time.monotonic()
    with serving({"/": Page(hangs=True)}) as server:
        text = Desk().failure(tool(max_seconds=0.4), url=f"http://site.example:{server.port}/")

    assert "took too long" in text
    assert time.monotonic() - started < 5


def test_the_handoffs_deadline_is_a_limit_too() -> None:
    with serving({"/": Page(hangs=True)}) as server:
        assert "took too long" in Desk(remaining_s=0.3).failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "video/mp4"])
def test_a_non_text_page_is_refused(content_type: str) -> None:
    with serving({"/": Page(b"...", content_type)}) as server:
        assert "cannot be read as text" in Desk().failure(
            tool(), url=f"http://site.example:{server.port}/"
        )


def test_an_error_of_the_server_is_reported() -> None:
    with serving({}) as server:
        assert "answered 404" in Desk().failure(
            tool(), url=f"http://site.example:{server.port}/gone"
        )


def test_a_page_made_by_scripts_says_so() -> None:
    with serving({"/": Page(b"<script>draw()</script>")}) as server:
        assert "holds no text" in Desk().failure(tool(), url=f"http://site.example:{server.port}/")


def test_a_closed_port_is_reported() -> None:
    with serving({}) as server:
        port = server.port

    assert "does not answer" in Desk().failure(tool(), url=f"http://site.example:{port}/")


def test_no_secrets_travel_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving({"/": Page(b"<p>x</p>")}) as server:
        Desk().call(tool(), url=f"http://site.example:{server.port}/")

    assert {name.lower() for name in server.agents[0]} == {
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
    text = Desk().failure(tool(), url=url)

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
        text = Desk().failure(fetch_url_tool(), url=f"http://{host}:{server.port}/")

    assert "not on the public internet" in text
    assert server.asked == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_is_checked_against_the_name_that_was_asked_for(tmp_path: Path) -> None:
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
    trusting = ssl.create_default_context(cafile=str(certificate))
    web = Web(resolver=always_here, policy=loopback_only, tls=trusting)

    with serving({"/": Page(b"<p>over TLS</p>")}, certificate=certificate, key=key) as server:
        answer = json.loads(
            Desk().call(fetch_url_tool(web), url=f"https://site.example:{server.port}/")
        )
        refused = Desk().failure(fetch_url_tool(web), url=f"https://other.example:{server.port}/")

    assert answer["text"] == "over TLS"
    assert "Hostname mismatch" in refused
