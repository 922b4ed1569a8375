"""For every promise about forks, there are records that break it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos.forks import POINTS, WRONG_FORKS, ForkRecord, ForkRecords

EVENTS = ('{"type": "job_submitted"}', '{"type": "job_ended"}')
KEPT = {"a": "digest of a", "b": "digest of b"}
FORK = ForkRecord(
    "1-0-fork",
    commands=2,
    killed=1,
    job_ids=("j-0123456789ab",),
    before=EVENTS,
    after=EVENTS,
    results=KEPT,
    kept_results=KEPT,
)


def breaches(fork: ForkRecord) -> list[str]:
    return ForkRecords([fork]).find_breaches()[WRONG_FORKS]


def test_a_killed_command_that_is_typed_again_makes_one_fork() -> None:
    assert breaches(FORK) == []
    assert ForkRecords([FORK]).collect_figures() == {
        "forks": 1,
        "commands of forks": 2,
        "killed": 1,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"job_ids": ()},
        {"job_ids": ("j-0123456789ab", "j-aaaaaaaaaaaa")},
        {"after": (*EVENTS, '{"type": "retry_requested"}')},
        {"after": EVENTS[:1]},
        {"kept_results": {"a": "digest of a"}},
        {"kept_results": {**KEPT, "a": "another digest"}},
        {"refusals": (2,)},
    ],
    ids=["none", "two", "event added", "event lost", "step lost", "result changed", "refused"],
)
def test_a_wrong_fork_is_a_breach(changes: dict[str, object]) -> None:
    assert len(breaches(replace(FORK, **changes))) == 1  # type: ignore[arg-type]


def test_the_first_command_is_killed_before_or_after_it_has_stored_the_fork() -> None:
    assert {"script.commit.before", "script.commit.after"} < {*POINTS}
