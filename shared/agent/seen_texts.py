"""The texts that a handoff has seen, and the search for the parts of a call in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote_plus, urlsplit

from handoff_queue.shared.agent.hidden_text_decoders import decode_percent_encodings
from handoff_queue.shared.agent.private_texts import Group, carries_private_text
from handoff_queue.shared.text.unicode_text import remove_invisible
from handoff_queue.shared.types.origins import MODEL, USER, Origin, union

WORDS_OF_A_PART = 4
"""Words in a row that make a part of an argument a copy."""
MIN_CHARS_OF_USER = 5
"""Letters and digits of the shortest argument that proves the will of the user. A shorter value,
such as the 13 of a date, is in a request by chance, and an attacker needs only this value.
"""
MAX_WORDS = 4_000
"""Words of one argument that are searched."""
_WORD = re.compile(r"[^\W_]+")
_URL = re.compile(r"https?://[^\s<>\"'`\\{}|^]+", re.IGNORECASE)
_END_OF_SENTENCE = ".,;:!?)]*_"
_BORDER_BEFORE = r"(?:^|(?<=\s))[\"'`“”‘’«»„‚(\[{<*$€£¥]*"
"""The marks that may stand between a space and a value of the user. Any other character
belongs to the value: `/srv/tmp` is not a value of `~/srv/tmp`.
"""
_BORDER_AFTER = r"[\"'`“”‘’«»)\]}>*$€£¥.,;:!?]*(?:\s|$)"
_NO_SIGN = r"(?<![-+\u2010-\u2015\u2212] )"
"""No sign that a space separates from its number."""
_MAX_PLAIN_CHARS = 32
"""Characters of a part with letters and digits that may be a plain name."""


@dataclass(frozen=True, slots=True)
class SeenText:
    """A text, and its origins."""

    text: str
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The texts that a handoff has seen so far, and their origins."""

    origins: tuple[Origin, ...] = ()
    """Origins of all that the handoff has seen, also of texts that are not in `texts`."""
    texts: tuple[SeenText, ...] = ()
    """The texts that the handoff has seen, and the user's request, which it may not have seen."""

    def add(self, *texts: SeenText) -> Seen:
        """Return this with more texts and their origins."""
        origins = union(self.origins, *(text.origins for text in texts))
        return Seen(origins, (*self.texts, *texts))

    def list_user_texts(self) -> list[str]:
        """Return the texts that the user wrote."""
        return [seen.text for seen in self.texts if seen.origins == (USER,)]


def find_argument_origins(
    arguments: Mapping[str, Any], seen: Seen
) -> dict[str, tuple[Origin, ...]]:
    """Return the origins of each argument: the origins of the texts that contain the value or
    four words of the value in a row. A part that no text contains has the origin `model`.
    """
    origins: dict[str, tuple[Origin, ...]] = {}
    for name, value in arguments.items():
        of_parts = [_find_origins(part, seen) for part in iterate_parts(value)]
        origins[name] = union((), *of_parts)
    return origins


def are_of_user(arguments: Mapping[str, Any], seen: Seen) -> bool:
    """Return whether there are arguments, and each whole value is in a text of the user.

    A value counts with its punctuation, its sign and its case. Only the case of plain words does
    not matter. A value with fewer than `MIN_CHARS_OF_USER` letters and digits does not count, and a
    value with invisible characters does not. True, false, null and empty values do not, either.
    """
    leaves = list(_iterate_values(list(arguments.values())))
    if not leaves:
        return False
    texts = seen.list_user_texts()
    return all(_is_in_user_text(leaf, texts) for leaf in leaves)


def _iterate_values(value: Any) -> Iterator[str]:
    """Yield the names and the values in a JSON value, in the form in which a user writes them.
    True, false, null and empty values have the form ''.
    """
    match value:
        case Mapping() if value:
            yield from map(str, value)
            for item in value.values():
                yield from _iterate_values(item)
        case [_, *_]:
            for item in value:
                yield from _iterate_values(item)
        case str():
            yield value
        case int() | float() if not isinstance(value, bool):
            yield f"{Decimal(repr(value)):f}".removesuffix(".0")  # 1e5 is 100000
        case _:
            yield ""


def _is_in_user_text(value: str, texts: Iterable[str]) -> bool:
    """Return whether one of the texts has the value, with a border before and after it. A space of
    the value may be a line break of the text.
    """
    if sum(map(str.isalnum, value)) < MIN_CHARS_OF_USER or remove_invisible(value) != value:
        return False
    has_lines = "\n" in value
    phrase = _collapse_spaces(value, has_lines)
    is_plain = phrase.replace(" ", "").isalpha()
    if is_plain:
        phrase = phrase.casefold()
    sign = _NO_SIGN if phrase[0].isdigit() else ""
    pattern = re.compile(f"{sign}{_BORDER_BEFORE}{re.escape(phrase)}{_BORDER_AFTER}")
    for text in texts:
        collapsed = _collapse_spaces(text, has_lines)
        if pattern.search(collapsed.casefold() if is_plain else collapsed):
            return True
    return False


def _collapse_spaces(text: str, keeps_lines: bool) -> str:
    """Return a text with single spaces, and a space for each line break unless it keeps these."""
    if not keeps_lines:
        return " ".join(text.split())
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def is_url_of_user(url: str, seen: Seen) -> bool:
    """Return whether the URL is word for word in a text of the user."""
    return _is_url_in(url, seen.list_user_texts())


def _is_url_in(url: str, texts: Iterable[str]) -> bool:
    for text in texts:
        if url not in text:
            continue
        for match in _URL.findall(text):
            if url in (match, match.rstrip(_END_OF_SENTENCE)):
                return True
    return False


def get_host(url: str) -> str | None:
    """Return the host of an http or https URL in small letters, or None."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return None
    return (parts.hostname or "").rstrip(".") or None


def is_allowed_host(host: str, hosts: Iterable[str]) -> bool:
    """Return whether a host is in the list. `*.example.org` stands for each subdomain."""
    host = host.casefold().rstrip(".")
    for pattern in hosts:
        if host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:])):
            return True
    return False


def url_carries_private_text(url: str, private: Sequence[str], public: Sequence[str]) -> bool:
    """Return whether a URL carries a copy from a private text, plain or in a known code.

    A URL that is word for word in a public text is not a copy. Words and figures of public
    texts are not copies, either. A URL with invisible characters or with a long run of letters and
    digits counts as a copy.

    Args:
        private: texts that must not leave.
        public: texts that may leave, such as the request.
    """
    if not private or _is_url_in(url, public):
        return False
    parts = _split(url)
    if parts is None:
        return True
    port = str(parts.port or "")
    if any(f"{parts.hostname}:{port}" in text for text in private):
        port = ""  # the port of a link
    return _is_carried(_build_url_groups(parts, port), private, public)


def _build_url_groups(parts: SplitResult, port: str) -> list[Group]:
    """Return the parts of a URL in groups.

    Args:
        port: the port if it may be a copy, or ''.
    """
    path: list[str] = []
    parameters: list[str] = []
    for segment in parts.path.replace("+", " ").split("/"):
        name, *segment_parameters = segment.split(";")
        path.append(name)
        parameters += segment_parameters
    query = _parse_query("&".join((parts.query, *parameters)))
    names = [name for name, _ in query]
    values = [value for _, value in query]
    values_by_name = [value for _, value in sorted(query, key=_get_parameter_index)]
    labels = (parts.hostname or "").split(".")[:-1]
    login = [parts.username or "", parts.password or ""]
    all_parts = [*labels, port, *path, *values_by_name, parts.fragment]
    return [
        _build_group(path, is_free=False),
        _build_group([parts.fragment], is_free=False),
        _build_group(labels, is_free=False),
        _build_group(names, is_free=True),
        _build_group(values, is_free=True),
        _build_group(values_by_name, is_free=True, is_joined_only=True),
        _build_group(chain.from_iterable(query), is_free=True, is_joined_only=True),
        _build_group([*login, port], is_free=True),
        _build_group(all_parts, is_free=False, is_joined_only=True),
    ]


def value_carries_private_text(value: Any, private: Sequence[str], public: Sequence[str]) -> bool:
    """Return whether an argument carries a copy from a private text. See
    `url_carries_private_text`.
    """
    if not private:
        return False
    group = Group(tuple(iterate_leaves(value)), is_free=True)
    return _is_carried([group], private, public)


def _build_group(parts: Iterable[str], *, is_free: bool, is_joined_only: bool = False) -> Group:
    """Return a group of parts of a URL, without percent-encoding."""
    return Group(tuple(map(decode_percent_encodings, parts)), is_free, is_joined_only)


def _get_parameter_index(field: tuple[str, str]) -> tuple[int, str]:
    """Return the place of a parameter by the number in its name."""
    digits = re.sub(r"[^0-9]", "", field[0])[:9]
    return int(digits or 0), field[0]


def _is_carried(groups: Sequence[Group], private: Sequence[str], public: Sequence[str]) -> bool:
    for group in groups:
        for part in group.parts:
            if remove_invisible(part) != part:
                return True
            if _is_opaque(part) and not _any_has_phrase(public, part):
                return True
    return carries_private_text(groups, private, public)


def _parse_query(query: str) -> list[tuple[str, str]]:
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


def iterate_leaves(value: Any) -> Iterator[str]:
    """Yield the texts and the numbers in a JSON value. True, false and null carry no text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from iterate_leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from iterate_leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def iterate_parts(value: Any) -> Iterator[str]:
    """Yield the leaves of a value. A URL that is a leaf has further parts."""
    for leaf in iterate_leaves(value):
        yield leaf
        if get_host(leaf) is not None:
            yield from iterate_url_parts(leaf)


def iterate_url_parts(url: str) -> Iterator[str]:
    """Yield the host of a URL, the segments of its path and the values of its query."""
    parts = urlsplit(url.strip())
    yield parts.hostname or ""
    yield from map(unquote_plus, parts.path.split("/"))
    for _, item in _parse_query(parts.query):
        yield item


@lru_cache(maxsize=256)
def _normalize_to_words(text: str) -> str:
    """Return the words of a text in small letters, with a space before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=64)
def _hash_pieces(text: str) -> frozenset[int]:
    """Return the hash of each run of `WORDS_OF_A_PART` words of a text. A search for each run would
    take half a second for a long argument.
    """
    words = _normalize_to_words(text).split()
    return frozenset(map(hash, _build_pieces(words)))


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())[:MAX_WORDS]


def _any_has_phrase(texts: Iterable[str], value: str) -> bool:
    """Return whether one of the texts has the words of a value, in a row. A value without words
    is in none.
    """
    phrase = _normalize_to_words(value)
    if not phrase.strip():
        return False
    return any(phrase in _normalize_to_words(text) for text in texts)


def _find_origins(part: str, seen: Seen) -> tuple[Origin, ...]:
    """Return the origins of the texts that contain the part, or four of its words."""
    words = _split_words(part)
    if not words:
        return ()
    phrase = f" {' '.join(words)} "
    pieces = frozenset(map(hash, _build_pieces(words)))
    origins: set[Origin] = set()
    is_whole = False
    for text in seen.texts:
        index = _normalize_to_words(text.text)
        if phrase in index:
            is_whole = True
            origins.update(text.origins)
        elif pieces and not pieces.isdisjoint(_hash_pieces(text.text)):
            origins.update(text.origins)
    if not is_whole:
        origins.add(MODEL)
    return tuple(sorted(origins))


def _build_pieces(words: Sequence[str]) -> list[str]:
    """Return each run of `WORDS_OF_A_PART` words."""
    pieces: list[str] = []
    for start in range(len(words) - WORDS_OF_A_PART + 1):
        pieces.append(f" {' '.join(words[start : start + WORDS_OF_A_PART])} ")
    return pieces


def _is_opaque(part: str) -> bool:
    """Return whether a part may be a code: a long run of letters and digits."""
    for word in _WORD.findall(part):
        if len(word) > _MAX_PLAIN_CHARS and any(map(str.isdigit, word)):
            return True
    return False
