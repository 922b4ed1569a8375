"""A secret is hidden in each spelling that a program gives it."""

from __future__ import annotations

import html
import json
import re
import shlex
import urllib.parse
from base64 import b64encode, urlsafe_b64encode

import pytest

from handoff_queue.shared.observability.redaction import HIDDEN, Redactor
from handoff_queue.shared.observability.secret_spellings import SecretSpellings
from handoff_queue.workers.tools.tenant_credentials import without_values

SECRET = "p\"4/ss'wö\\rd <?>=+&~ÿ"
IN_JSON = json.dumps(SECRET)[1:-1]
QUOTED = urllib.parse.quote(SECRET, safe="")
SPELLINGS = {
    "plain": SECRET,
    "JSON": IN_JSON,
    "JSON with letters": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "JSON with escaped slashes": IN_JSON.replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps({"a": SECRET})),
    "JSON in capitals": re.sub(r"u00..", lambda match: f"u{match[0][1:].upper()}", IN_JSON),
    "JSON of Go": re.sub("[<>&]", lambda match: f"\\u00{ord(match[0]):02x}", IN_JSON),
    "percent": QUOTED,
    "percent in small letters": re.sub("%..", lambda match: match[0].lower(), QUOTED),
    "percent twice": urllib.parse.quote(QUOTED),
    "percent of JavaScript": urllib.parse.quote(SECRET, safe="!'()*~"),
    "percent with a slash": urllib.parse.quote(SECRET),
    "a form": urllib.parse.urlencode({"key": SECRET}),
    "HTML": html.escape(SECRET),
    "HTML of MarkupSafe": html.escape(SECRET).replace("&#x27;", "&#39;"),
    "Python": repr(SECRET),
    "bytes of Python": repr(SECRET.encode()),
    "a shell": shlex.quote(SECRET),
    "base64": b64encode(SECRET.encode()).decode(),
    "base64url": urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    "base64 after one byte": b64encode(b":" + SECRET.encode()).decode(),
    "base64 with a user": b64encode(b"admin:" + SECRET.encode()).decode(),
    "base64 between others": b64encode(b"ab" + SECRET.encode() + b"more").decode(),
    "hexadecimal digits": SECRET.encode().hex(),
    "hexadecimal digits in capitals": SECRET.encode().hex().upper(),
}


def pieces() -> set[str]:
    """Return parts of all spellings that must not stay."""
    return {spelling[start : start + 12] for spelling in SPELLINGS.values() for start in (8, 12)}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelling_of_a_secret_is_hidden(spelling: str) -> None:
    shown = Redactor([SECRET]).without_values(f"it is {SPELLINGS[spelling]} here")

    assert HIDDEN in shown
    assert shown.startswith("it is ")
    assert shown.endswith(" here")
    assert not any(piece in shown for piece in pieces())


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tool_shows_the_name_of_a_secret(spelling: str) -> None:
    shown = without_values(f"it is {SPELLINGS[spelling]} here", {"TOKEN": SECRET})

    assert "[TOKEN]" in shown
    assert not any(piece in shown for piece in pieces())


def test_a_secret_from_a_url_is_hidden_also_without_percent_encodings() -> None:
    assert Redactor(["p%40ss-word"]).text("p@ss-word") == HIDDEN


def test_the_longest_of_two_secrets_is_hidden_first() -> None:
    spellings = SecretSpellings({"secret-1": "[A]", "secret-1-and-more": "[B]"})

    assert spellings.replaced_in("secret-1-and-more, secret-1") == "[B], [A]"


def test_without_secrets_a_text_stays() -> None:
    assert SecretSpellings({}).replaced_in("a text") == "a text"
    assert SecretSpellings({"": "[A]"}).replaced_in("a text") == "a text"


def test_a_short_secret_has_no_spelling_that_other_texts_have_by_chance() -> None:
    assert without_values("MQ and 31", {"A": "1"}) == "MQ and 3[A]"
