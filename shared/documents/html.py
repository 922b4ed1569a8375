"""Conversion of HTML to plain text that keeps quotable structure: headings, paragraphs, lists,
rows of tables, code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from handoff_queue.shared.documents.media_types import DocumentRefused
from handoff_queue.shared.settings.optional_packages import describe_missing_package

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
"""Elements that are left out with their content: scripts, styles, navigation, forms."""
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre",
    "section", "summary", "table", "tr", "ul",
})  # fmt: skip
_TIGHT = frozenset({"li", "tr", "dt", "dd"})
"""Blocks on separate lines without an empty line between them."""
_ONLY_MARK = re.compile(r"\s*(#{1,6}|-)\s*")
"""A line with only the mark of a heading or list item. In `<li><p>`, the mark waits for the
text of the paragraph.
"""
_HIDING_STYLE = re.compile(
    r"display\s*+:\s*+none|visibility\s*+:\s*+(?:hidden|collapse)"
    r"|(?:font-size|opacity|max-height|height)\s*+:\s*+(?:0++(?:\.0++)?|\.0++)"
    r"(?:px|pt|r?em|%)?\s*+(?:;|!|$)",
    re.IGNORECASE,
)
"""Styles of an element whose text a reader does not see."""
_HEADING = re.compile(r"h[1-6]")
_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE
)


def find_declared_charset(data: bytes) -> str | None:
    """Return the encoding that a page declares in its first 2,048 bytes, or None."""
    match = _CHARSET.search(data[:2048])
    if match:
        return match.group(1).decode("ascii")
    return None


def extract_html_text(markup: str) -> str:
    """Return the text of a page: its title as a heading, then its `main` element. A page
    without exactly one `main` gives its whole body. If the text begins with a heading, the
    title is left out.

    Raises:
        DocumentRefused: the package that parses HTML is not installed.
    """
    try:
        # optional: a client without this package can read other documents
        from selectolax.lexbor import LexborHTMLParser
    except ModuleNotFoundError:
        raise DocumentRefused(
            describe_missing_package("selectolax", "is HTML, which", "documents")
        ) from None
    tree = LexborHTMLParser(markup)
    title_node = tree.css_first("title")
    title = _collapse_spaces(title_node.text()) if title_node is not None else ""
    mains = tree.css("main")
    root = mains[0] if len(mains) == 1 else tree.body
    body = _Writer().render_text(root) if root is not None else ""
    if title and not body.startswith("# "):
        return f"# {title}\n\n{body}".rstrip()
    return body


def _collapse_spaces(text: str) -> str:
    """Return the text with a single space for each run of white space."""
    return re.sub(r"\s+", " ", text).strip()


class _Writer:
    """Writer of the text of a tree. It walks the tree without recursion, because hostile pages
    nest deeper than Python's stack allows.
    """

    def __init__(self) -> None:
        self._blocks: list[str] = []
        """Blocks, each with its separator."""
        self._line: list[str] = []
        """Pieces of the current block. A piece `\\0` is a line break."""
        self._verbatim = 0
        """Number of open `pre` elements."""

    def render_text(self, root: LexborNode) -> str:
        """Return the text below a node."""
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
        return re.sub(r"\n{3,}", "\n\n", "".join(self._blocks)).strip()

    def _enter(self, node: LexborNode) -> LexborNode | None:
        """Write the text that comes before the children of a node. Return the first child, or
        None if there is none or the node is left out.
        """
        tag = node.tag or ""
        if node.is_text_node:
            self._line.append(node.text_content or "")
            return None
        if tag in _DROPPED or node.is_comment_node or _is_hidden(node):
            return None
        if tag == "br":
            self._line.append("\n" if self._verbatim else "\0")
        if tag in ("td", "th") and any(map(str.strip, self._line)):
            self._line.append(" | ")
        if tag in _BLOCKS:
            self._end_block("\n" if tag in _TIGHT else "\n\n", opening=True)
            self._line.append(_get_mark(tag))
            self._verbatim += tag == "pre"
        return node.first_child

    def _leave(self, node: LexborNode) -> None:
        """End the block of a node after its children."""
        tag = node.tag or ""
        if tag in _BLOCKS and tag not in _DROPPED:
            self._end_block("\n" if tag in _TIGHT else "\n\n")
            self._verbatim -= tag == "pre"

    def _end_block(self, separator: str, *, opening: bool = False) -> None:
        """End the current block, if it has text, with a separator.

        Args:
            opening: True if a block begins inside the current one. Then a current block with only a
                mark stays open.
        """
        raw = "".join(self._line)
        if opening and _ONLY_MARK.fullmatch(raw):
            return
        self._line.clear()
        if self._verbatim:
            text = raw.strip("\n")
        else:
            text = "\n".join(map(_collapse_spaces, raw.split("\0"))).strip()
        if text.strip() and not _ONLY_MARK.fullmatch(text):
            self._blocks.append(text + separator)
        elif self._blocks and separator == "\n\n" and not self._blocks[-1].endswith("\n\n"):
            self._blocks.append("\n")


def _is_hidden(node: LexborNode) -> bool:
    """Return whether the element itself says that a reader does not see it."""
    attributes = node.attributes
    if not attributes:
        return False
    if "hidden" in attributes:
        return True
    style = attributes.get("style") or ""
    return _HIDING_STYLE.search(style) is not None


def _get_mark(tag: str) -> str:
    """Return the Markdown mark at the beginning of a heading or list item; '' for other tags."""
    if _HEADING.fullmatch(tag):
        return "#" * int(tag[1]) + " "
    if tag == "li":
        return "- "
    return ""
