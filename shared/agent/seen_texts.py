"""The texts that a handoff has seen, and the search for the parts of a call in them. Pure."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote_plus, urlsplit

from handoff_queue.shared.types.origins import MODEL, USER, Origin, union

WORDS_OF_A_PART = 4
"""Words in a row that make a part of an argument a copy."""
FEWEST_CHARS_OF_USER = 5
"""Letters and digits of the shortest argument that proves the will of the user. A shorter value,
such as the 13 of a date, stands in a request by chance, and an attacker needs only this value.
"""
MOST_WORDS = 4_000
"""Words of one argument that are searched."""
_WORD = re.compile(r"[^\W_]+")
_URL = re.compile(r"https?://[^\s<>\"'`\\{}|^]+", re.IGNORECASE)
_END_OF_SENTENCE = ".,;:!?)]*_"
_FIGURE = re.compile(r"\d[\d.,'\u00a0\u202f ]*\d")
_YEAR = re.compile(r"(19|20)\d\d")
_CODED = re.compile(r"[A-Za-z0-9+/_=-]{12,}")
_LONGEST_PLAIN = 32
"""Characters of a part with letters and digits that may be a plain name."""


@dataclass(frozen=True, slots=True)
class SeenText:
    """A text, and its origins."""

    text: str
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a handoff has seen so far."""

    origins: tuple[Origin, ...] = ()
    """Origins of all that the handoff has seen, also of texts that are not in `texts`."""
    texts: tuple[SeenText, ...] = ()
    """The texts that the handoff has seen, and the user's request, which it may not have seen."""

    def plus(self, *texts: SeenText) -> Seen:
        """Return this with more texts and their origins."""
        origins = union(self.origins, *(text.origins for text in texts))
        return Seen(origins, (*self.texts, *texts))

    def of_user(self) -> list[str]:
        """Return the texts that the user wrote."""
        return [seen.text for seen in self.texts if seen.origins == (USER,)]


def origins_of_arguments(arguments: Mapping[str, Any], seen: Seen) -> dict[str, tuple[Origin, ...]]:
    """Return the origins of each argument: the origins of the texts that contain the value or
    four words of the value in a row. A part that no text contains has the origin `model`.
    """
    found: dict[str, tuple[Origin, ...]] = {}
    for name, value in arguments.items():
        found[name] = union(*(_origins_of(part, seen) for part in _parts(value)), ())
    return found


def are_of_user(arguments: Mapping[str, Any], seen: Seen) -> bool:
    """Return whether there are arguments, and each whole value stands in a text of the user.

    A value with fewer than `FEWEST_CHARS_OF_USER` letters and digits does not count.
    """
    leaves = list(_leaves(list(arguments.values())))
    texts = seen.of_user()
    return bool(leaves) and all(
        sum(map(str.isalnum, leaf)) >= FEWEST_CHARS_OF_USER and _stands_in(leaf, texts)
        for leaf in leaves
    )


def is_url_of_user(url: str, seen: Seen) -> bool:
    """Return whether the URL stands word for word in a text of the user."""
    for text in seen.of_user():
        for match in _URL.findall(text):
            if url in (match, match.rstrip(_END_OF_SENTENCE)):
                return True
    return False


def host_of(url: str) -> str | None:
    """Return the host of an http or https URL in small letters, or None."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return None
    return (parts.hostname or "").rstrip(".") or None


def is_allowed_host(host: str, hosts: Iterable[str]) -> bool:
    """Return whether a host is in the list. `*.example.org` stands for each subdomain."""
    host = host.casefold().rstrip(".")
    for allowed in hosts:
        if host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])):
            return True
    return False


def url_carries(url: str, private: Sequence[str], public: Sequence[str]) -> bool:
    """Return whether a part of the URL is a copy from a private text.

    In a query string, one word of four letters is a copy, and so is a figure. In a path and in
    the labels of a host, a figure or three words in a row are a copy. A part that stands in a
    public text is none.

    Args:
        private: texts that must not leave.
        public: texts that may leave, such as the request.
    """
    parts = _split(url)
    if parts is None:
        return True
    for key, value in _query(parts.query):
        if any(_is_copy(text, private, public, 1) for text in (key, value)):
            return True
    segments = [*parts.path.split("/"), parts.fragment, *(parts.hostname or "").split(".")[:-2]]
    return any(_is_copy(unquote_plus(text), private, public, 3) for text in segments)


def value_carries(value: Any, private: Sequence[str], public: Sequence[str]) -> bool:
    """Return whether an argument has a word of four letters or a figure of a private text."""
    return any(_is_copy(leaf, private, public, 1) for leaf in _leaves(value))


def _query(query: str) -> list[tuple[str, str]]:
    if not query:
        return []
    return parse_qsl(query, keep_blank_values=True)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        return None
    return parts


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts and the numbers in a JSON value. True, false and null carry no text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _parts(value: Any) -> Iterator[str]:
    """Yield the leaves of a value. A URL that is a leaf has its host, the segments of its path
    and the values of its query as further parts.
    """
    for leaf in _leaves(value):
        yield leaf
        if host_of(leaf) is None:
            continue
        parts = urlsplit(leaf.strip())
        yield parts.hostname or ""
        yield from map(unquote_plus, parts.path.split("/"))
        for _, item in _query(parts.query):
            yield item


@lru_cache(maxsize=256)
def _indexed(text: str) -> str:
    """Return the words of a text in small letters, with a space before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=64)
def _pieces_in(text: str) -> frozenset[int]:
    """Return the hash of each run of `WORDS_OF_A_PART` words of a text. A search for each run would
    take half a second for a long argument.
    """
    return frozenset(map(hash, _pieces(_indexed(text).split(), WORDS_OF_A_PART)))


@lru_cache(maxsize=256)
def _figures_in(text: str) -> frozenset[str]:
    """Return the digits of each figure of a text, without separators."""
    return frozenset(re.sub(r"\D", "", figure) for figure in _FIGURE.findall(text))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())[:MOST_WORDS]


def _stands_in(value: str, texts: Iterable[str]) -> bool:
    needle = _indexed(value)
    return bool(needle.strip()) and any(needle in _indexed(text) for text in texts)


def _origins_of(part: str, seen: Seen) -> tuple[Origin, ...]:
    """Return the origins of the texts that contain the part, or four of its words."""
    words = _words(part)
    if not words:
        return ()
    whole = f" {' '.join(words)} "
    pieces = frozenset(map(hash, _pieces(words, WORDS_OF_A_PART)))
    origins: set[Origin] = set()
    is_whole = False
    for text in seen.texts:
        index = _indexed(text.text)
        if whole in index:
            is_whole = True
            origins.update(text.origins)
        elif pieces and not pieces.isdisjoint(_pieces_in(text.text)):
            origins.update(text.origins)
    if not is_whole:
        origins.add(MODEL)
    return tuple(sorted(origins))


def _pieces(words: Sequence[str], size: int) -> list[str]:
    """Return each run of `size` words."""
    pieces: list[str] = []
    for start in range(len(words) - size + 1):
        pieces.append(f" {' '.join(words[start : start + size])} ")
    return pieces


def _is_copy(part: str, private: Sequence[str], public: Sequence[str], most_words: int) -> bool:
    """Return whether a part of a call has a figure, or `most_words` words in a row, of a private
    text. Code that a model can make from such a text, and that no public text has, is a copy, too.
    """
    if not part.strip() or not private or _stands_in(part, public):
        return False
    for text in (part, *_decoded(part)):
        if _has_figure(text, private, public) or _has_words(text, private, public, most_words):
            return True
    return _is_opaque(part)


def _has_figure(part: str, private: Sequence[str], public: Sequence[str]) -> bool:
    for word in _words(part):
        has_digit = any(character.isdigit() for character in word)
        if not has_digit or len(word) < 2 or _stands_in(word, public):
            continue
        if _stands_in(word, private) and not _YEAR.fullmatch(word):
            return True
    public_figures = frozenset[str]().union(*map(_figures_in, public))
    for figure in _figures_in(part) - public_figures:
        if not _YEAR.fullmatch(figure) and any(figure in _figures_in(text) for text in private):
            return True
    return False


def _has_words(part: str, private: Sequence[str], public: Sequence[str], most_words: int) -> bool:
    words = [word for word in _words(part) if most_words > 1 or len(word) >= WORDS_OF_A_PART]
    for piece in _pieces(words, most_words):
        if _stands_in(piece, private) and not _stands_in(piece, public):
            return True
    return False


def _decoded(part: str) -> Iterator[str]:
    """Yield the texts that a part hides: from right to left, as base64, as hexadecimal digits."""
    yield part[::-1]
    for code in _CODED.findall(part):
        for decode in (_from_hex, _from_base64):
            text = decode(code)
            if text is not None:
                yield text


def _from_hex(code: str) -> str | None:
    try:
        return bytes.fromhex(code).decode()
    except ValueError:
        return None


def _from_base64(code: str) -> str | None:
    code = code.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return urlsafe_b64decode(code + "=" * (-len(code) % 4)).decode()
    except (NotBase64, ValueError):
        return None


def _is_opaque(part: str) -> bool:
    """Return whether a part may be a code: a long run of letters and digits."""
    for word in _WORD.findall(part):
        if len(word) > _LONGEST_PLAIN and any(map(str.isdigit, word)):
            return True
    return False
