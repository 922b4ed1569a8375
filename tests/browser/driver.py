"""Control a browser with the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.waiting import wait_until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of a reference to an element in the protocol."""
EXPECT_CLICK = """
const element = arguments[0];
window.clickReached = false;
window.clickCheck = (event) => {
  window.clickReached = element.contains(event.target);
  if (!window.clickReached) { event.preventDefault(); event.stopImmediatePropagation(); }
};
window.addEventListener('click', window.clickCheck, { capture: true, once: true });
return null
"""
"""Note whether the next click reaches the element, and stop a click on another element."""
READ_CLICK = """
window.removeEventListener('click', window.clickCheck, { capture: true });
return window.clickReached ?? null
"""
"""Return whether the click reached the element; null on the next page."""
MOVED_ERRORS = ("stale element reference", "element click intercepted")
"""Errors of an element that a live page replaced or moved."""
COPY = 1
"""Bit of the operation `copy` in a drag of the DevTools protocol."""


@dataclass(frozen=True)
class Browser:
    """One browser window."""

    session: httpx2.Client

    def open(self, page: Path) -> None:
        self.visit(page.as_uri())

    def visit(self, url: str) -> None:
        self._post("url", url=url)

    def click(self, selector: str) -> None:
        """Click on the first element that matches.

        A live page can move or replace the element between the driver's measurement and the click.
        A click that reaches another element is stopped, and the driver clicks again.
        """

        def has_clicked() -> bool:
            element = self._find(selector)
            if not self._unless_moved("execute/sync", script=EXPECT_CLICK, args=[element]):
                return False
            is_done = self._unless_moved(f"element/{element[ELEMENT]}/click")
            return self.run(READ_CLICK) is not False and is_done

        wait_until(has_clicked, expected=f"a click on {selector}")

    def type(self, selector: str, text: str) -> None:
        """Type a text into the first element that matches."""

        def has_typed() -> bool:
            element = self._find(selector)
            return self._unless_moved(f"element/{element[ELEMENT]}/value", text=text)

        wait_until(has_typed, expected=f"a text in {selector}")

    def drop(self, selector: str, *files: Path) -> None:
        """Drag files with the mouse from outside the browser, and drop the files on an element."""
        x, y = self.run(
            f"const one = document.querySelector({selector!r});"
            " one.scrollIntoView({ block: 'center' });"
            " const { left, top, width, height } = one.getBoundingClientRect();"
            " return [left + width / 2, top + height / 2]"
        )
        data = {"items": [], "files": list(map(str, files)), "dragOperationsMask": COPY}
        for moment in ("dragEnter", "dragOver", "drop"):
            self._cdp("Input.dispatchDragEvent", type=moment, x=x, y=y, data=data)

    def run(self, script: str) -> Any:
        """Run a script and return its value. The script needs a `return` statement."""
        return self._post("execute/sync", script=script, args=[])

    def set_hidden(self, is_hidden: bool) -> None:
        """Let the page believe that another page hides it, or that the user sees it again."""
        value = str(is_hidden).lower()
        self.run(
            f"const property = {{ get: () => {value}, configurable: true }};"
            " Object.defineProperty(document, 'hidden', property);"
            " document.dispatchEvent(new Event('visibilitychange')); return null"
        )

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first element that matches."""
        return str(self.run(f"return document.querySelector({selector!r}).innerText"))

    def count(self, selector: str) -> int:
        """Return the number of visible elements that match."""
        return int(
            self.run(
                f"return [...document.querySelectorAll({selector!r})].filter((one) =>"
                " one.offsetParent !== null).length"
            )
        )

    def resize(self, width: int, height: int) -> None:
        """Set the size of the viewport in CSS pixels."""
        self._cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Set the preferred colour scheme: `dark` or `light`."""
        self._cdp(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def print_media(self, scheme: str | None) -> None:
        """Show the page as in print, with this preferred colour scheme. None: as on a screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self._cdp("Emulation.setEmulatedMedia", media="print" if scheme else "", features=features)

    def screenshot(self, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        answer = self.session.get("screenshot").raise_for_status()
        to.write_bytes(base64.b64decode(answer.json()["value"]))

    def console_errors(self) -> list[str]:
        """Return the errors in the browser's console: script errors and violations of the content
        policy.
        """
        entries: Sequence[dict[str, Any]] = self._post("se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def _find(self, selector: str) -> dict[str, str]:
        """Return the reference to the first element that matches."""
        element: dict[str, str] = self._post("element", using="css selector", value=selector)
        return element

    def _unless_moved(self, command: str, **body: Any) -> bool:
        """Send a command about an element. Return False if the page replaced or moved the
        element.
        """
        answer = self.session.post(command, json=body)
        is_moved = any(error in answer.text for error in MOVED_ERRORS)
        assert answer.is_success or is_moved, answer.text
        return answer.is_success

    def _cdp(self, command: str, **params: Any) -> None:
        self._post("goog/cdp/execute", cmd=command, params=params)

    def _post(self, command: str, **body: Any) -> Any:
        answer = self.session.post(command, json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a headless Chromium with this profile folder, and close it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
    offline_options = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        *offline_options,
    ]
    capabilities = {
        "goog:chromeOptions": {"binary": binary, "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/", timeout=60, trust_env=False
        ) as client:
            wait_until(lambda: _answers(client), expected="chromedriver")
            session = (
                client.post("session", json={"capabilities": {"alwaysMatch": capabilities}})
                .raise_for_status()
                .json()["value"]["sessionId"]
            )
            client.base_url = client.base_url.join(f"session/{session}/")
            try:
                yield Browser(client)
            finally:
                client.delete(
                    f"http://127.0.0.1:{port}/session/{session}"
                ).raise_for_status()  # This closes the browser, too.
    finally:
        driver.terminate()
        driver.wait()


def _answers(client: httpx2.Client) -> bool:
    try:
        return bool(client.get("status").json()["value"]["ready"])
    except httpx2.TransportError:
        return False
