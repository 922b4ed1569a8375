"""Spellings of a secret in texts: in JSON, URLs, HTML, Python's `repr`, shells, base64 and
hexadecimal digits.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

SHORTEST_CONTAINED = 6
"""Least number of characters of a secret that is also hidden inside a longer text, and in base64. A
shorter secret, such as "1", stands in other texts by chance.
"""
_ESCAPE = r"\\{1,8}"
"""Backslashes of an escape. JSON inside JSON inside JSON has seven."""
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.-]")
"""Characters that all programs write as they are."""
_OTHERS = {
    '"': ["&quot;", "&#34;"],
    "'": ["&#39;", "&#x27;", "'\"'\"'"],
    "<": ["&lt;"],
    ">": ["&gt;"],
    "&": ["&amp;"],
    " ": ["+"],
}
"""Spellings in HTML, in a form and in a shell."""
_LETTERS_OF_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class SecretSpellings:
    """Replaces secrets in texts, in each of their spellings."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        """Initialize the replacement.

        Args:
            shown: the text that is shown in place of each secret.
        """
        # The longest first: a secret that contains another must not leave its tail behind.
        secrets = sorted(filter(None, shown), key=len, reverse=True)
        self._codes: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        for secret in secrets:
            for code in _codes_of(secret):
                self._codes.setdefault(code, shown[secret])
            self._shown[pattern_of(secret)] = shown[secret]
        self._pattern = re.compile("|".join(self._shown)) if self._shown else None

    def replaced_in(self, text: str) -> str:
        """Return the text without the secrets."""
        if self._pattern is None:
            return text
        for code, instead in self._codes.items():
            if code in text:
                text = text.replace(code, instead)
        return self._pattern.sub(self._instead, text)

    def _instead(self, match: re.Match[str]) -> str:
        """Return the text to show for a match. Groups in the pattern would slow each search."""
        shown = self._shown.items()
        return next(instead for pattern, instead in shown if re.fullmatch(pattern, match[0]))


def pattern_of(secret: str) -> str:
    """Return a pattern that matches a secret and its spellings with escapes."""
    if "%" in secret:
        return f"{_escaped(secret)}|{_escaped(unquote(secret))}"
    return _escaped(secret)


def _escaped(secret: str) -> str:
    """Return a pattern that matches the secret, with any of its characters escaped."""
    pattern: list[str] = []
    for part in re.findall(r"\\+|[^\\]", secret, re.DOTALL):
        if _AS_IT_IS.fullmatch(part):
            pattern.append(re.escape(part))
        else:
            pattern.append(f"(?:{'|'.join(_spellings_of(part))})")
    return "".join(pattern)


def _spellings_of(part: str) -> Iterator[str]:
    """Yield the patterns of a character, or of some backslashes."""
    data = _bytes_of(part)
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
    yield from map(re.escape, _OTHERS.get(part, ()))


def _codes_of(secret: str) -> Iterator[str]:
    """Yield hexadecimal digits, and the characters of base64 that only the secret decides. It can
    begin at each place in a group of three bytes, as after `user:`.
    """
    if len(secret) < SHORTEST_CONTAINED:
        return
    data = _bytes_of(secret)
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        first = (before * 8 + 5) // 6
        last = (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]


def _bytes_of(secret: str) -> bytes:
    """Return the bytes in UTF-8. A variable of the environment can have other bytes."""
    return secret.encode("utf-8", "surrogateescape")
