"""What is said of a collector that takes nothing."""

from __future__ import annotations

import logging

import pytest

from shared.otel.export import _SAYS_OF_EACH, Sparing


@pytest.mark.parametrize("name", _SAYS_OF_EACH)
def test_the_sdk_has_such_a_logger(name: str) -> None:
    assert name in logging.root.manager.loggerDict


def test_a_service_says_once_a_minute_that_batches_fail() -> None:
    clock = [0.0]
    spared = Sparing(lambda: clock[0])
    record = logging.makeLogRecord({"msg": "Failed to export span batch"})

    said = []
    for clock[0] in (0.0, 0.5, 59.0, 60.0, 61.0, 200.0):
        said.append(bool(spared.filter(record)))
    assert said == [True, False, False, True, False, True]
    assert spared.filter(logging.makeLogRecord({"msg": "Queue full"})), "another thing"
