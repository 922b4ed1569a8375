"""The SQLite file of the document index, which all processes and threads of the host share.
This module opens, checks and replaces it.

SQLite runs in WAL mode, so readers never wait. The name of the file has a generation number. A
SQLite file must not be deleted or moved while it is in use. So a corrupt, foreign or too large
file stays in place, and all processes switch to the next generation. An old file is deleted
when no process holds its lock file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from handoff_queue.shared.types.errors import UserError

SCHEMA_VERSION = 1
MAX_BYTES = 4 << 30
"""Bytes of a file above which a new file replaces it. Documents in use are then indexed again."""
BUSY_S = 30.0
"""Seconds that a writer waits for the batches of other processes."""
ORDINAL_BITS = 20
"""Bits of a passage's id for its number in the document. The higher bits are the document's
id. A document has at most 2**20 passages in the index.
"""
_RETRY_S = 0.01
_APPLICATION_ID = 0x48414F46
_MAX_IDLE_CONNECTIONS = 4
_SCHEMA = f"""
    PRAGMA application_id = {_APPLICATION_ID};
    CREATE TABLE documents (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
    CREATE TABLE passages (id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, snippet TEXT NOT NULL);
    CREATE VIRTUAL TABLE words USING fts5(heading, body, content='', tokenize='porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, row);
    PRAGMA user_version = {SCHEMA_VERSION};
"""  # noqa: E501 - lines of a text
"""SQL of an empty index. The id of a passage is document << ORDINAL_BITS | ordinal, so that the
document of a match is known without a join.
"""


class _UnusableFile(Exception):
    """The file of this generation cannot be used."""


class Database:
    """Connections to the newest usable generation. Threads may share this object. After a
    fork, the child process opens its own connections.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "documents"
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._generation: int | None = None
        self._idle: list[sqlite3.Connection] = []
        self._locked_file: int | None = None

    @property
    def generation(self) -> int | None:
        """Generation that this process uses, or None if no file is open."""
        if self._pid == os.getpid():
            return self._generation
        return None

    @contextmanager
    def connection(self) -> Iterator[tuple[int, sqlite3.Connection]]:
        """Yield the generation and a connection, for one thread at a time. After damage the
        next call uses a new file.

        Raises:
            sqlite3.DatabaseError: the file is damaged or busy, or the disk is full.
            UserError: the cache folder cannot be used.
        """
        generation, connection = self._take()
        try:
            yield generation, connection
        except sqlite3.DatabaseError as error:
            connection.close()
            if _is_damage(error):
                self._abandon(generation)
            raise
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if generation == self._generation and len(self._idle) < _MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections and the lock file. The next use opens the file again."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            if self._locked_file is not None:
                os.close(self._locked_file)
            self._forget()

    def _take(self) -> tuple[int, sqlite3.Connection]:
        with self._lock:
            if self._pid != os.getpid():
                self._forget()
            if self._generation is None:
                self._generation, connection = self._open_newest()
                return self._generation, connection
            if self._idle:
                return self._generation, self._idle.pop()
            generation = self._generation
        try:
            return generation, _connect(self._get_file(generation))
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                self._abandon(generation)
            raise

    def _abandon(self, generation: int) -> None:
        """Mark the file as bad, so that this process and all others switch to the next
        generation.
        """
        with self._lock:
            if self._generation == generation:
                with suppress(OSError):
                    self._get_file(generation).with_suffix(".bad").touch()
                self._generation = None
                for connection in self._idle:
                    connection.close()
                self._idle = []

    def _get_file(self, generation: int) -> Path:
        return self._folder / f"v{SCHEMA_VERSION}-{generation:06d}.sqlite"

    def _open_newest(self) -> tuple[int, sqlite3.Connection]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            generations: list[int] = []
            for file in self._folder.glob(f"v{SCHEMA_VERSION}-*.sqlite"):
                generations.append(int(file.stem.partition("-")[2]))
            generation = max(generations, default=0)
            for _ in range(100):
                if not self._get_file(generation).with_suffix(".bad").exists():
                    self._hold(generation)
                    with suppress(_UnusableFile):
                        connection = _open(self._get_file(generation))
                        self._delete_older_than(generation)
                        return generation, connection
                generation += 1
        except (OSError, sqlite3.OperationalError) as error:
            raise UserError(
                f"the full-text index in {self._folder} cannot be used ({error}): set"
                " HANDOFF_CACHE_DIR"
            ) from error
        raise UserError(
            f"the full-text index in {self._folder} cannot be used: delete that folder, or set"
            " HANDOFF_CACHE_DIR"
        )

    def _hold(self, generation: int) -> None:
        """Lock the generation until this process ends, so that no other process deletes its
        file.
        """
        lock = os.open(
            self._get_file(generation).with_suffix(".lock"),
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        fcntl.flock(lock, fcntl.LOCK_SH)
        if self._locked_file is not None:
            os.close(self._locked_file)
        self._locked_file = lock

    def _delete_older_than(self, newest: int) -> None:
        for lock in sorted(self._folder.glob(f"v{SCHEMA_VERSION}-*.lock")):
            generation = int(lock.stem.partition("-")[2])
            if generation >= newest:
                continue
            with suppress(OSError), lock.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for suffix in (".sqlite", ".sqlite-wal", ".sqlite-shm", ".bad", ".lock"):
                    self._get_file(generation).with_suffix(suffix).unlink(missing_ok=True)


def _open(file: Path) -> sqlite3.Connection:
    """Return a connection to the file. A new file gets the schema.

    Raises:
        _UnusableFile: the file is damaged, foreign, too large or no regular file.
    """
    if file.exists() and (not file.is_file() or file.stat().st_size > MAX_BYTES):
        raise _UnusableFile
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect(file)
        _prepare(connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.DatabaseError):
            lacks_table = "no such" in str(error)
            if lacks_table or _is_damage(error):
                raise _UnusableFile from error
        raise
    return connection


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file is damaged. A busy file, a full disk and wrong SQL are not damage."""
    return not isinstance(
        error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError
    )


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -16000")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the schema in an empty file, and check the file.

    Raises:
        _UnusableFile: the file belongs to another application or another version.
        sqlite3.DatabaseError: the file is damaged or busy.
    """
    _use_wal(connection)
    if _read_version(connection) == 0:
        connection.execute("BEGIN IMMEDIATE")
        if (
            _read_version(connection) == 0
            and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        ):
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != _APPLICATION_ID or _read_version(connection) != SCHEMA_VERSION:
        raise _UnusableFile
    connection.execute("SELECT count(*) FROM (SELECT rowid FROM words LIMIT 1)").fetchone()


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the WAL mode. In a new file, SQLite sets it at once or fails: it does not wait for
    another process that writes.

    Raises:
        sqlite3.DatabaseError: the file is damaged, or busy for `BUSY_S`.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until:
                raise
        time.sleep(_RETRY_S)


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
