"""Redaction: removes secrets from log lines, Flower's columns and error messages.

A secret is removed in each of its spellings: in JSON, URLs, HTML, Python's `repr`, shells, base64
and hexadecimal digits.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from handoff_queue.shared.settings.settings import Settings

HIDDEN: Final = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:(?:api_?|access_?|private_?|secret_?)?keys?|token|secrets?|passw(?:or)?ds?|passphrase|credentials?|authorization|cookies?)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|BASIC_AUTH", re.IGNORECASE
)
_HEADERS = re.compile(r"_HEADERS$")
"""Names of variables with HTTP headers, such as OTEL_EXPORTER_OTLP_HEADERS. Their value
`name=value,name=value` often holds a key.
"""
_HARMLESS_NAMES = frozenset({"routing_key", "keys"})
_SHAPES = (
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), HIDDEN),  # user:password of any URL
    (re.compile(r"\bsk-[A-Za-z0-9_\-]{12,}"), HIDDEN),  # the model provider's keys
    (re.compile(r"(hq_[0-9a-f]{12}_)[A-Za-z0-9_\-]{12,}"), rf"\1{HIDDEN}"),  # tokens of our API
    (re.compile(r"hqn_[0-9a-f]{32}"), HIDDEN),  # names of notes in `shared.store.memory_notes`
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{12,}"), rf"\1 {HIDDEN}"),
)
_MAX_DEPTH = 6
"""Levels of nested data that are searched by name. Deeper data becomes text."""
MIN_CONTAINED_CHARS = 6
"""Least number of characters of a secret that is also hidden inside a longer text, and in base64. A
shorter secret, such as "1", is in other texts by chance.
"""
_ESCAPE = r"\\{1,8}"
"""Backslashes of an escape. JSON inside JSON inside JSON has seven."""
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.-]")
"""Characters that all programs write as they are."""
_ESCAPED_FORMS = {
    '"': ["&quot;", "&#34;"],
    "'": ["&#39;", "&#x27;", "'\"'\"'"],
    "<": ["&lt;"],
    ">": ["&gt;"],
    "&": ["&amp;"],
    " ": ["+"],
}
"""Spellings in HTML, in a form and in a shell."""
_LETTERS_OF_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class Redactor:
    """Hides given values in each of their spellings, texts that look like credentials, and all
    values under a name of a secret.

    A value with fewer than `MIN_CONTAINED_CHARS` characters is hidden only where it is the whole
    text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets) - {""}
        replacements = {
            secret: HIDDEN for secret in self._secrets if len(secret) >= MIN_CONTAINED_CHARS
        }
        self._contained = SecretSpellings(replacements)

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""
        return without_credentials(self.without_values(text))

    def without_values(self, text: str) -> str:
        """Return the text without the given values. Other texts that look like credentials stay."""
        if text in self._secrets:
            return HIDDEN
        return self._contained.replace_secrets_in(text)

    def redact_value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return plain data without secrets. A value under the name of a secret is replaced.
        Numbers, booleans and None are never secrets.

        A value that is not plain data, or is nested too deep, becomes its text without
        secrets.

        Args:
            name: name of the value, if it has one.
            depth: number of levels above the value.
        """
        if isinstance(value, bool | int | float) or value is None:
            return value
        if _SECRET_NAME.search(name) and name not in _HARMLESS_NAMES:
            return HIDDEN
        if depth < _MAX_DEPTH:
            if isinstance(value, Mapping):
                clean: dict[str, Any] = {}
                for key, item in value.items():
                    clean[self.redact_text(str(key))] = self.redact_value(item, str(key), depth + 1)
                return clean
            if isinstance(value, list | tuple | set | frozenset):
                return [self.redact_value(item, depth=depth + 1) for item in value]
        return self.redact_text(value if isinstance(value, str) else repr(value))


def without_credentials(text: str) -> str:
    """Return the text with each part that looks like a credential replaced by `[redacted]`."""
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


def find_secrets(
    settings: Settings, environment: Mapping[str, str] | None = None
) -> frozenset[str]:
    """Return the secrets of a process.

    They are the values of environment variables with names of secrets, the values of headers
    in variables, and every secret setting. The passwords of URLs in the variables and the
    settings are secrets, too.

    Args:
        environment: None for the environment of this process.
    """
    variables = os.environ if environment is None else environment
    secrets: set[str] = set()
    for name, value in variables.items():
        if _SECRET_VARIABLE.search(name):
            secrets.add(value)
        if _HEADERS.search(name):
            secrets.update(_iterate_header_values(value))
    for value in tuple(secrets):
        secrets.update(_iterate_basic_auth_passwords(value))
    setting_secrets: set[str] = set()
    for _, setting in settings:
        if isinstance(setting, SecretStr):
            setting_secrets.add(setting.get_secret_value())
    for value in (*variables.values(), *setting_secrets):
        if "://" in value:
            for url in value.split(";"):
                secrets.update(_find_passwords(url))
    return frozenset(secrets | setting_secrets) - {""}


def find_secret_settings(settings: Settings) -> frozenset[str]:
    """Return the values of the secret settings. A URL gives its passwords only, because the address
    in it may be in a document, too.
    """
    secrets: set[str] = set()
    for _, setting in settings:
        if not isinstance(setting, SecretStr):
            continue
        value = setting.get_secret_value()
        if "://" not in value:
            secrets.add(value)
            continue
        for url in value.split(";"):
            secrets |= _find_passwords(url)
    return frozenset(secrets - {""})


def _iterate_basic_auth_passwords(value: str) -> Iterator[str]:
    """Yield the passwords of `user:password,user:password`."""
    for part in value.split(","):
        if ":" in part and "://" not in part:
            yield part.partition(":")[2]


def _iterate_header_values(headers: str) -> Iterator[str]:
    """Yield each value of `name=value,...`, and of `Name: value` lines. In a part without `=`
    each word may be the key.
    """
    for line in headers.split("\n"):
        yield line.partition(":")[2].strip()
    for part in headers.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield value.strip()
            continue
        yield name.strip()
        for word in re.split(r"[\s:]+", name):
            if len(word) >= MIN_CONTAINED_CHARS:
                yield word


def _find_passwords(url: str) -> set[str]:
    """Return the password of a URL, and its query parameters with names of secrets. Return an
    empty set if the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        passwords = {unquote(parts.password or "")}
        for name, value in parse_qsl(parts.query):
            if _SECRET_NAME.search(name):
                passwords.add(value)
    except ValueError:
        return set()
    return passwords


class SecretSpellings:
    """Replaces secrets in texts, in each of their spellings."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        """Initialize the replacement.

        Args:
            replacements: the text that is shown in place of each secret.
        """
        # The longest first: a secret that contains another must not leave its tail behind.
        secrets = sorted(filter(None, replacements), key=len, reverse=True)
        self._codes: dict[str, str] = {}
        self._replacements: dict[str, str] = {}
        for secret in secrets:
            for code in _iterate_codes(secret):
                self._codes.setdefault(code, replacements[secret])
            self._replacements[build_pattern(secret)] = replacements[secret]
        self._pattern = re.compile("|".join(self._replacements)) if self._replacements else None

    def replace_secrets_in(self, text: str) -> str:
        """Return the text without the secrets."""
        if self._pattern is None:
            return text
        for code, instead in self._codes.items():
            if code in text:
                text = text.replace(code, instead)
        return self._pattern.sub(self._replace_match, text)

    def _replace_match(self, match: re.Match[str]) -> str:
        """Return the text to show for a match. Groups in the pattern would slow each search."""
        replacements = self._replacements.items()
        return next(instead for pattern, instead in replacements if re.fullmatch(pattern, match[0]))


def build_pattern(secret: str) -> str:
    """Return a pattern that matches a secret and its spellings with escapes."""
    if "%" in secret:
        return f"{_build_secret_pattern(secret)}|{_build_secret_pattern(unquote(secret))}"
    return _build_secret_pattern(secret)


def _build_secret_pattern(secret: str) -> str:
    """Return a pattern that matches the secret, with any of its characters escaped."""
    pattern: list[str] = []
    for part in re.findall(r"\\+|[^\\]", secret, re.DOTALL):
        if _AS_IT_IS.fullmatch(part):
            pattern.append(re.escape(part))
        else:
            pattern.append(f"(?:{'|'.join(_iterate_spellings(part))})")
    return "".join(pattern)


def _iterate_spellings(part: str) -> Iterator[str]:
    """Yield the patterns of a character, or of some backslashes."""
    data = _encode_utf8(part)
    if part[0] == "\\":
        yield f"\\\\{{{len(part)},{len(part) * 8}}}"
    else:
        yield rf"\\{{0,8}}{re.escape(part)}"
    utf_16 = part.encode("utf-16-be", "surrogatepass")
    units = [utf_16[start : start + 2].hex() for start in range(0, len(utf_16), 2)]
    yield "".join(f"{_ESCAPE}(?i:u{unit})" for unit in units)
    yield "".join(f"{_ESCAPE}(?i:x{byte:02x})" for byte in data)
    yield "".join(f"(?i:%(?:25)*{byte:02x})" for byte in data)
    if part in _LETTERS_OF_ESCAPES:
        yield _ESCAPE + _LETTERS_OF_ESCAPES[part]
    yield from map(re.escape, _ESCAPED_FORMS.get(part, ()))


def _iterate_codes(secret: str) -> Iterator[str]:
    """Yield hexadecimal digits, and the characters of base64 that only the secret decides. It can
    begin at each place in a group of three bytes, as after `user:`.
    """
    if len(secret) < MIN_CONTAINED_CHARS:
        return
    data = _encode_utf8(secret)
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        first = (before * 8 + 5) // 6
        last = (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]


def _encode_utf8(secret: str) -> bytes:
    """Return the bytes in UTF-8. A variable of the environment can have other bytes."""
    return secret.encode("utf-8", "surrogateescape")
