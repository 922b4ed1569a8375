"""Conversion of HTML to plain text that keeps quotable structure: headings, paragraphs, lists, rows
of tables, code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from handoff_queue.shared.documents.decoding import DocumentRefused
from handoff_queue.shared.settings.optional_packages import missing

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_DROPPED = frozenset(
    {
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "iframe",
        "object",
        "nav",
        "form",
        "button",
        "select",
        "head",
        "canvas",
    }
)
"""Elements without content for a reader: scripts, styles, navigation."""
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section", "summary", "table", "tr", "ul",
})  # fmt: skip
_TIGHT = frozenset({"li", "tr", "dt", "dd"})
"""Blocks on separate lines, without an empty line between them."""
_ONLY_MARK = re.compile(r"\s*(#{1,6}|-)\s*")
"""`<li><p>`: the item's mark waits for the paragraph's text."""
_HEADING = re.compile(r"h[1-6]")
_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE
)


def find_declared_charset(data: bytes) -> str | None:
    """Return the encoding that the page declares in its first kilobyte, as browsers do."""
    match = _CHARSET.search(data[:2048])
    if match:
        return match.group(1).decode("ascii")
    return None


def html_text(markup: str) -> str:
    """Return the text of a page: its title as a heading, then the body, or only its one `main`.

    Raises:
        Refused: the package that parses HTML is not installed.
    """
    try:
        from selectolax.lexbor import LexborHTMLParser  # a client without it reads other documents
    except ModuleNotFoundError:
        raise DocumentRefused(missing("selectolax", "is HTML, which", "documents")) from None
    tree = LexborHTMLParser(markup)
    title_node = tree.css_first("title")
    title = _folded(title_node.text()) if title_node is not None else ""
    mains = tree.css("main")
    root = mains[0] if len(mains) == 1 else tree.body
    body = _Writer().written(root) if root is not None else ""
    if title and not body.startswith("# "):
        return f"# {title}\n\n{body}".rstrip()
    return body


def _folded(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


class _Writer:
    """Collects blocks while walking the tree without recursion: hostile pages nest deeper than
    Python's stack.
    """

    def __init__(self) -> None:
        self._done: list[str] = []
        self._line: list[str] = []
        self._verbatim = 0

    def written(self, root: LexborNode) -> str:
        node: LexborNode | None = root
        root_id = root.mem_id  # comparing nodes compares their whole HTML
        while node is not None:
            child = self._enter(node)
            if child is not None:
                node = child
                continue
            while node is not None:
                self._leave(node)
                if node.mem_id == root_id:
                    node = None
                    break
                if node.next is not None:
                    node = node.next
                    break
                node = node.parent
        self._end_block("\n\n")
        return re.sub(r"\n{3,}", "\n\n", "".join(self._done)).strip()

    def _enter(self, node: LexborNode) -> LexborNode | None:
        """Write the text before the node's children, and return the first child to continue with."""
        tag = node.tag or ""
        if node.is_text_node:
            self._line.append(node.text_content or "")
            return None
        if tag in _DROPPED or node.is_comment_node:
            return None
        if tag == "br":
            self._line.append("\n" if self._verbatim else "\0")
        if tag in ("td", "th") and any(piece.strip() for piece in self._line):
            self._line.append(" | ")
        if tag in _BLOCKS:
            self._end_block("\n" if tag in _TIGHT else "\n\n", opening=True)
            self._line.append(_mark_of(tag))
            self._verbatim += tag == "pre"
        return node.first_child

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in _BLOCKS and tag not in _DROPPED:
            self._end_block("\n" if tag in _TIGHT else "\n\n")
            self._verbatim -= tag == "pre"

    def _end_block(self, separator: str, *, opening: bool = False) -> None:
        raw = "".join(self._line)
        if opening and _ONLY_MARK.fullmatch(raw):
            return
        self._line.clear()
        if self._verbatim:
            text = raw.strip("\n")
        else:
            text = "\n".join(_folded(line) for line in raw.split("\0")).strip()
        if text.strip() and not _ONLY_MARK.fullmatch(text):
            self._done.append(text + separator)
        elif self._done and separator == "\n\n" and not self._done[-1].endswith("\n\n"):
            self._done.append("\n")


def _mark_of(tag: str) -> str:
    if _HEADING.fullmatch(tag):
        return "#" * int(tag[1]) + " "
    if tag == "li":
        return "- "
    return ""
