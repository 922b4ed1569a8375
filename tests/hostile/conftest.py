"""A system of real processes that sign their messages, for the tests of forged messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.signed_system import SignedSystem, signed_system


@pytest.fixture(scope="package")
def signing_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedSystem]:
    with signed_system(tmp_path_factory.mktemp("signed")) as system:
        yield system


@pytest.fixture
def signed(signing_processes: SignedSystem) -> Iterator[SignedSystem]:
    """Yield the system without dead letters."""
    signing_processes.store.dead_letters.drop_all()
    yield signing_processes
    signing_processes.store.dead_letters.drop_all()
