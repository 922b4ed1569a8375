"""`handoff serve` behind a real reverse proxy: nginx checks the password and names the user.

nginx stands for every proxy that authenticates users. It is Debian's, because oauth2-proxy has no
package on Debian, PyPI or npm.
"""

from __future__ import annotations

import getpass
import hashlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import httpx2
import pytest

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.supervisor.cli.console_process import has_server
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from tests.docs.pages import blocks, text_of
from tests.e2e.commands import Handoff
from tests.e2e.test_serve import served

NGINX = which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is the reverse proxy"),
]

UPSTREAM, PORT = "http://127.0.0.1:8321", "listen 127.0.0.1:8080"
"""The addresses of the page."""
GROUPS = {"ann": "queue-operators", "bob": "staff", "eve": ""}
FORGED = {"X-Forwarded-Email": "ann", "X-Forwarded-Groups": "queue-operators"}


@dataclass(frozen=True)
class Site:
    """A server, and the proxy in front of this server."""

    server: str
    proxy: str
    redis_url: str

    def get(self, user: str | None, path: str, **headers: str) -> httpx2.Response:
        auth = (user, "a password") if user else None
        return httpx2.get(self.proxy + path, auth=auth, headers=headers, trust_env=False)


def password_line(user: str) -> str:
    """Return the line of a password file: the salted SHA-1, which nginx knows as SSHA."""
    digest = hashlib.sha1(b"a password" + b"salt").digest()
    return f"{user}:{{SSHA}}{b64encode(digest + b'salt').decode()}\n"


def nginx_configuration(folder: Path, server: str, port: int) -> str:
    """Return the configuration of the page, in the frame of a process without privileges."""
    (site,) = blocks(text_of("how-to/proxy-login"), "nginx")
    adapted = site.replace(UPSTREAM, server).replace(PORT, f"listen 127.0.0.1:{port}")
    adapted = adapted.replace("/etc/nginx/queue-users", str(folder / "users"))
    paths = "".join(
        f"{kind}_temp_path {folder};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"user {getpass.getuser()};\ndaemon off;\npid {folder}/pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{adapted}}}\n"
    )


@pytest.fixture(scope="module")
def site(redis_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, url = tmp_path_factory.mktemp("nginx"), f"{redis_server}?prefix=proxy"
    (folder / "users").write_text("".join(map(password_line, GROUPS)))
    (folder / "users").chmod(0o644)
    folder.chmod(0o755)
    settings = {
        "HANDOFF_SERVE_PROXIES": "127.0.0.1",
        "HANDOFF_SERVE_USER_HEADER": "X-Forwarded-Email",
        "HANDOFF_SERVE_GROUPS_HEADER": "X-Forwarded-Groups",
        "HANDOFF_SERVE_ACCESS": "queue-operators=operate,staff=read",
    }
    port = find_free_port()
    with (
        served(Handoff(folder), url, **settings) as (_, server),
        Processes(folder / "processes") as processes,
    ):
        (folder / "nginx.conf").write_text(nginx_configuration(folder, server, port))
        command = [str(NGINX), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        processes.start(ChildSpec("nginx", command, is_ready=lambda: has_server(port)))
        processes.wait_until_ready()
        yield Site(server, f"http://127.0.0.1:{port}", url)


def test_the_proxy_asks_for_a_password(site: Site) -> None:
    assert site.get(None, "/v1/jobs").status_code == 401


def test_a_user_of_the_proxy_has_the_access_level_of_its_group(site: Site) -> None:
    jobs = client.connect(site.redis_url)
    ann = httpx2.post(
        f"{site.proxy}/v1/jobs",
        auth=("ann", "a password"),
        json={"text": "How does HNSW work?"},
        trust_env=False,
    )
    bob = httpx2.post(
        f"{site.proxy}/v1/jobs",
        auth=("bob", "a password"),
        json={"text": "How does HNSW work?"},
        trust_env=False,
    )

    assert (ann.status_code, bob.status_code) == (202, 403)
    assert site.get("bob", "/v1/jobs").json()["jobs"][0]["job_id"] == ann.json()["job_id"]
    (entry,) = jobs.audit(ann.json()["job_id"])
    assert entry.actor is not None
    assert (entry.actor.name, entry.actor.address) == ("ann", "127.0.0.1")


def test_a_document_of_several_megabytes_passes_the_proxy(site: Site) -> None:
    sent = httpx2.post(
        f"{site.proxy}/v1/jobs",
        auth=("ann", "a password"),
        json={"text": "Summarise.", "documents": {"a.md": "A long text. " * 200_000}},
        trust_env=False,
        timeout=60,
    )

    assert sent.status_code == 202


def test_the_console_needs_no_login_behind_the_proxy(site: Site) -> None:
    page = site.get("ann", "/")

    assert page.status_code == 200
    assert "<h1>Jobs</h1>" in page.text


def test_the_proxy_replaces_the_headers_of_the_browser(site: Site) -> None:
    eve = site.get("eve", "/v1/jobs", **FORGED)

    assert eve.status_code == 403
    assert "eve" in eve.json()["detail"]


def test_events_pass_the_proxy_while_the_job_runs(site: Site) -> None:
    jobs = client.connect(site.redis_url)
    job_id = jobs.submit(Request("How does IVF work?"))

    with httpx2.stream(
        "GET",
        f"{site.proxy}/v1/jobs/{job_id}/events",
        auth=("bob", "a password"),
        trust_env=False,
        timeout=30,
    ) as stream:
        first = next(stream.iter_lines())

    assert (stream.status_code, first) == (200, "id: 1")
