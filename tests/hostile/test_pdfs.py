"""A hostile PDF costs its own text and nothing else. The next file is read, and no file, program or
address that it names is touched.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from handoff_queue.shared.documents.extraction import HeavyFile, extract_texts
from handoff_queue.shared.documents.folder import read_folder
from handoff_queue.shared.documents.media_types import PDF, DocumentRefused, normalize_text
from handoff_queue.shared.text.unicode_text import remove_invisible
from tests.shared.documents.sample_files import pdf_with

pytestmark = pytest.mark.slow

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
    b" /Resources << /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >> >>"
)
TEXT = b"BT /F1 12 Tf 72 720 Td (The price is 3 euros.) Tj ET"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
PRICE = "The price is 3 euros."
SECRET = "the secret of another file"


def stream(content: bytes, entries: bytes = b"") -> bytes:
    """Return a stream object."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def catalog(entries: bytes) -> bytes:
    """Return a catalog with more entries."""
    return b"<< /Type /Catalog /Pages 2 0 R %s >>" % entries


def document(changed: Mapping[int, bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF with a price, of which some objects are changed."""
    objects = {1: CATALOG, 2: PAGES, 3: PAGE, 4: stream(TEXT), 5: FONT, **changed}
    data, offsets = b"%PDF-1.7\n", dict[int, int]()
    for number, content in objects.items():
        offsets[number] = len(data)
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start, size = len(data), max(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        data += b"%010d 00000 n \n" % offsets.get(number, 0)
    return data + b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (
        size,
        trailer,
        start,
    )


def nested(levels: int) -> bytes:
    """Return a page tree of so many levels with one page."""
    kids = {2: b"<< /Type /Pages /Kids [10 0 R] /Count 1 >>"}
    for level in range(levels):
        kids[10 + level] = b"<< /Type /Pages /Parent 2 0 R /Kids [%d 0 R] /Count 1 >>" % (
            11 + level
        )
    kids[10 + levels] = PAGE
    return document(kids)


def deflated(content: bytes, times: int = 1) -> bytes:
    """Return a stream of the content, which is deflated so many times."""
    for _ in range(times):
        content = zlib.compress(content, 9)
    return stream(content, b"/Filter [%s]" % (b"/FlateDecode " * times))


CMAP = b"""/CIDInit /ProcSet findresource begin begincmap
1 begincodespacerange <0000> <ffff> endcodespacerange
1 beginbfrange %s endbfrange endcmap end"""
MAPPED_FONT = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 7 0 R"
    b" /DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X >>] >>"
)
ATTACKS: dict[str, bytes] = {
    "a page that is itself": document({3: b"3 0 R"}),
    "two pages that are each other": document({3: b"6 0 R", 6: b"3 0 R"}),
    "a page tree in a circle": document({2: b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>"}),
    "a page tree of 5,000 levels": nested(5_000),
    "a page tree of a billion pages": document(
        {2: b"<< /Type /Pages /Kids [3 0 R] /Count 1000000000 >>"}
    ),
    "a page with a length in a part": document(
        {3: b"<< /Type /Page /Resources << /Font << /Length 36 >>\nstream\nBTj\n<< /A 1 >>"}
    ),
    "no page tree": document({2: b"null"}),
    "content that is itself": document({4: b"4 0 R"}),
    "content with a length of another size": document(
        {4: b"<< /Length 9999999999 >>\nstream\n%s\nendstream" % TEXT}
    ),
    "content with a negative length": document(
        {4: b"<< /Length -1 >>\nstream\n%s\nendstream" % TEXT}
    ),
    "content with a length that is itself": document(
        {4: b"<< /Length 4 0 R >>\nstream\n%s\nendstream" % TEXT}
    ),
    "content that expands a thousand times": document({4: deflated(b" " * 100_000_000)}),
    "content that expands in many layers": document({4: deflated(b" " * 20_000_000, 4)}),
    "a hundred filters": document({4: stream(TEXT, b"/Filter [%s]" % (b"/ASCIIHexDecode " * 100))}),
    "an unknown filter": document({4: stream(TEXT, b"/Filter /Evil")}),
    "a predictor of a billion columns": document(
        {
            4: stream(
                zlib.compress(TEXT),
                b"/Filter /FlateDecode /DecodeParms << /Predictor 12 /Columns 1000000000 >>",
            )
        }
    ),
    "a form that draws itself": document(
        {
            4: stream(b"/X Do"),
            6: stream(b"/X Do", b"/Subtype /Form /Resources << /XObject << /X 6 0 R >> >>"),
        }
    ),
    "arrays of 100,000 levels": document({4: stream(b"[" * 100_000 + TEXT)}),
    "a dictionary of 5,000 levels": document({6: b"<< /A " * 5_000 + b"1" + b" >>" * 5_000}),
    "a name tree in a circle": document(
        {1: catalog(b"/Names 6 0 R"), 6: b"<< /Dests << /Kids [6 0 R] >> >>"}
    ),
    "an older table that is this one": document({}, b"/Prev 9"),
    "a table far behind the end": document({}, b"/Prev 99999999999999999999"),
    "a map of four billion characters": document(
        {
            5: MAPPED_FONT,
            7: stream(CMAP % b"<00000000> <ffffffff> <0041>"),
        }
    ),
    "a map to half a character": document(
        {5: MAPPED_FONT, 7: stream(CMAP % b"<0000> <ffff> <d800>")}
    ),
    "a lock with a wrong algorithm": document(
        {6: b"<< /Filter /Standard /V 99 /R 99 /O (x) /U (x) /P -1 >>"},
        b"/Encrypt 6 0 R /ID [(a) (a)]",
    ),
    "a lock that is itself": document({6: b"6 0 R"}, b"/Encrypt 6 0 R"),
    "numbers beyond all floats": document(
        {4: stream(b"BT /F1 1e999 Tf %s 0 Td (x) Tj ET" % (b"9" * 400))}
    ),
    "control characters": document({4: stream(b"BT /F1 12 Tf (\\033[2J\\000\\010) Tj ET")}),
    "half a file": document({})[:300],
    "only the first bytes": b"%PDF-1.7",
}
NAMES_FILES: dict[str, bytes] = {
    "content in another file": document({4: stream(TEXT, b"/F (secret.txt)")}),
    "a program to start": document({1: catalog(b"/OpenAction << /S /Launch /F (/bin/true) >>")}),
    "a script": document({1: catalog(b"/OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >>")}),
    "an address": document({1: catalog(b"/OpenAction << /S /URI /URI (http://127.0.0.1:9) >>")}),
    "an attached file": document(
        {
            1: catalog(b"/Names << /EmbeddedFiles << /Names [(a) 6 0 R] >> >>"),
            6: b"<< /Type /Filespec /F (a) /EF << /F 7 0 R >> >>",
            7: stream(SECRET.encode(), b"/Type /EmbeddedFile"),
        }
    ),
}


def opened(path: Path) -> IO[bytes]:
    """Open a file."""
    return path.open("rb")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | DocumentRefused]:
    """Return the text or the error of each file. The last file is harmless."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "secret.txt").write_text(SECRET)
    files: dict[str, HeavyFile] = {}
    for name, data in (ATTACKS | NAMES_FILES | {"harmless": pdf_with("harmless")}).items():
        (folder / name).write_bytes(data)
        files[name] = HeavyFile(partial(opened, folder / name), PDF)
    return dict(zip(files, extract_texts([*files.values()], timeout_s=20), strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_pdf_gives_clean_text_or_one_line(
    outcomes: dict[str, str | DocumentRefused], name: str
) -> None:
    outcome = outcomes[name]

    if isinstance(outcome, DocumentRefused):
        assert str(outcome).isprintable()
        assert str(outcome).startswith(("is a ", "takes longer", "needs more than"))
        assert len(str(outcome)) < 200
    else:
        assert remove_invisible(normalize_text(outcome)) == outcome
        assert len(outcome) < 1_000_000


@pytest.mark.parametrize("name", NAMES_FILES)
def test_a_pdf_gets_nothing_that_it_names(
    outcomes: dict[str, str | DocumentRefused], name: str
) -> None:
    assert outcomes[name] == PRICE


def test_a_harmless_pdf_after_hostile_ones_is_read(
    outcomes: dict[str, str | DocumentRefused],
) -> None:
    assert outcomes["harmless"] == "harmless"


def test_the_parts_of_the_attacks_make_a_pdf_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(document({}))

    assert list(read_folder(tmp_path).texts.values()) == [PRICE]
