"""No archive is unpacked: an archive among documents is refused by name, and compressed data of
other programs is unpacked to a limit.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.documents.folder import read_folder
from handoff_queue.shared.store.payloads import unpack
from handoff_queue.shared.types.errors import UnreadablePayload

BOMB = b"\0" * 5_000_000
SECRET = b"root:x:0:0"


def zip_of(name: str, content: bytes = BOMB, attributes: int = 0) -> bytes:
    """Return a ZIP file with one member."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = attributes
        archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def tar_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    """Return a TAR file with one member."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, target, len(SECRET)
        archive.addfile(member, io.BytesIO(SECRET))
    return file.getvalue()


ARCHIVES: dict[str, bytes] = {
    "a ZIP that expands a thousand times": zip_of("a.txt"),
    "a ZIP in a ZIP": zip_of("a.zip", zip_of("b.zip", zip_of("c.txt"))),
    "a ZIP with a path out of the folder": zip_of("../../etc/passwd", SECRET),
    "a ZIP with an absolute path": zip_of("/etc/passwd", SECRET),
    "a ZIP with a link": zip_of("a", b"/etc/passwd", 0o120777 << 16),
    "a document of Word": zip_of("word/document.xml", b"<w:t>obey</w:t>"),
    "a sheet of Excel": zip_of("xl/workbook.xml", b"<x>=cmd|'/c calc'!A1</x>"),
    "an EPUB with an entity": zip_of(
        "a.opf", b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'
    ),
    "a JAR": zip_of("META-INF/MANIFEST.MF", b"Main-Class: A"),
    "a TAR with a path out of the folder": tar_of("../a"),
    "a TAR with a link": tar_of("a", tarfile.SYMTYPE, "/etc/passwd"),
    "a TAR with a hard link": tar_of("a", tarfile.LNKTYPE, "../../etc/passwd"),
    "a TAR with a device": tar_of("a", tarfile.CHRTYPE),
    "GZIP": gzip.compress(BOMB),
    "GZIP of a TAR": gzip.compress(tar_of("../a")),
    "BZIP2": bz2.compress(BOMB),
    "XZ": lzma.compress(BOMB),
    "zlib": zlib.compress(BOMB),
    "7z": b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(64),
    "RAR": b"Rar!\x1a\x07\x01\0" + bytes(64),
}
SUFFIXES = (".zip", ".md", ".html", ".csv")
"""Endings of the names: a hostile name says that the archive is a text."""


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_refused_under_any_name(tmp_path: Path, name: str, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(ARCHIVES[name])
    (tmp_path / "good.md").write_text("good")

    reading = read_folder(tmp_path)

    assert list(reading.texts.values()) == ["good"]
    (note,) = reading.notes
    assert note.startswith(f"left out: a{suffix} ")
    assert note.isprintable()


COMPRESSED: dict[str, Callable[[], bytes]] = {
    "a payload that is too long": lambda: b"z" + zlib.compress(BOMB),
    "a payload of two streams": lambda: b"z" + zlib.compress(b"a")[:-1],
    "a payload that is cut off": lambda: b"z" + zlib.compress(BOMB)[:-20],
    "a payload with a dictionary": lambda: b"z\x78\xbb" + bytes(8),
    "a payload of GZIP": lambda: b"z" + gzip.compress(b"a"),
    "a payload of raw DEFLATE": lambda: b"z" + zlib.compress(b"a")[2:-4],
    "a payload that is not text": lambda: b"=\xff\xfe",
    "a payload with half a character": lambda: b"=\xed\xa0\xbd",
    "a long payload that is not compressed": lambda: b"=" + BOMB,
}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_hostile_payload_is_unpacked_to_the_limit_and_no_further(kind: str) -> None:
    with pytest.raises(UnreadablePayload) as caught:
        unpack(COMPRESSED[kind](), 1_000_000)

    assert str(caught.value).isprintable()
