"""`handoff doctor` prints lines about live processes, from their announcements."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from handoff_queue.shared.store.presence import LiveProcess
from handoff_queue.shared.types.presence import ModelCalls, Node
from handoff_queue.supervisor.cli.doctor_processes import CheckLevel, Finding, check_live_processes

NOW = 1_000.0
ERROR = "the key was refused (401): invalid x-api-key"
FAILED = ModelCalls(model="small", failures=4, error=ERROR, failing_since=900.0, failed_at=990.0)
SUCCEEDED = ModelCalls(model="small", succeeded_at=995.0)


def live_process(
    name: str = "h:1", kind: Literal["worker", "supervisor"] = "worker", **facts: Any
) -> LiveProcess:
    known = {
        "node": f"{name}@h",
        "broker": "redis://:**@a:6379/0",
        "version": "1.0",
        "slots": 8,
        "model": "anthropic",
        "server": "https://models.example",
        "models": {"writer": "small"},
    }
    return LiveProcess(kind, name, Node(**{**known, **facts}))


def findings_of(*processes: LiveProcess, version: str = "1.0") -> list[Finding]:
    return list(check_live_processes(processes, NOW, version))


def problems_of(*processes: LiveProcess, version: str = "1.0") -> list[tuple[CheckLevel, str]]:
    findings = findings_of(*processes, version=version)
    return [
        (finding.level, finding.about) for finding in findings if finding.level is not CheckLevel.OK
    ]


def test_a_process_is_reported_with_its_version_slots_broker_model_and_server() -> None:
    (finding,) = findings_of(live_process())

    assert (finding.level, finding.about) == (CheckLevel.OK, "worker h:1")
    assert finding.report == (
        "version 1.0, 8 slots, broker redis://:**@a:6379/0,"
        " model anthropic (small) at https://models.example, no model call yet"
    )


def test_processes_that_announce_the_same_share_a_line() -> None:
    (finding,) = findings_of(*(live_process(f"h:{number}") for number in range(7)))

    assert finding.about == "7 workers"
    assert "56 slots" in finding.report
    assert finding.report.endswith("h:0, h:1, h:2, h:3, h:4 and 2 more")


def test_failed_calls_are_a_failure_with_the_servers_words_and_when() -> None:
    facts, failure = findings_of(live_process(calls=(FAILED,)))

    assert "last model call failed 10 s ago" in facts.report
    assert (failure.level, failure.about) == (CheckLevel.FAIL, "model small")
    assert failure.report == f"the last 4 calls of worker h:1 failed, the newest 10 s ago: {ERROR}"


def test_a_call_that_succeeds_again_clears_the_failure() -> None:
    assert problems_of(live_process(calls=(SUCCEEDED,))) == []


def test_the_same_failure_of_many_workers_is_one_line() -> None:
    findings = findings_of(*(live_process(f"h:{number}", calls=(FAILED,)) for number in range(3)))

    assert [finding.about for finding in findings] == ["3 workers", "model small"]
    assert "the last 12 calls of 3 workers failed" in findings[1].report


def test_a_model_that_one_job_asked_for_is_a_warning_once_other_calls_succeed() -> None:
    typo = FAILED.model_copy(update={"model": "smal"})

    assert problems_of(live_process(calls=(typo,))) == [(CheckLevel.FAIL, "model smal")]
    assert problems_of(live_process(calls=(typo, SUCCEEDED))) == [(CheckLevel.WARN, "model smal")]


def test_a_failing_default_model_is_a_failure_though_other_calls_succeed() -> None:
    other = SUCCEEDED.model_copy(update={"model": "large"})

    assert problems_of(live_process(calls=(FAILED, other))) == [(CheckLevel.FAIL, "model small")]


@pytest.mark.parametrize(
    ("since", "level"), [(NOW - 5, CheckLevel.WARN), (NOW - 500, CheckLevel.FAIL)]
)
def test_a_short_overload_is_a_warning_and_a_lasting_one_a_failure(
    since: float, level: CheckLevel
) -> None:
    busy = FAILED.model_copy(update={"is_busy": True, "failing_since": since})

    assert problems_of(live_process(calls=(busy,))) == [(level, "model small")]


@pytest.mark.parametrize(
    ("facts", "about", "names"),
    [
        ({"version": "1.1"}, "versions", "1.0 (worker h:1), 1.1 (worker h:2)"),
        ({"model": "offline", "server": ""}, "providers", "offline (worker h:2)"),
        ({"server": "http://local"}, "model servers", "http://local (worker h:2)"),
        ({"models": {"writer": "large"}}, "models", "writer: large or small"),
    ],
)
def test_a_mixed_fleet_is_a_warning_that_names_the_difference(
    facts: dict[str, Any], about: str, names: str
) -> None:
    findings = findings_of(live_process("h:1"), live_process("h:2", **facts))

    (warning,) = [finding for finding in findings if finding.level is not CheckLevel.OK]
    assert (warning.level, warning.about) == (CheckLevel.WARN, about)
    assert names in warning.report
    assert warning.fix


def test_different_models_for_different_roles_are_not_a_mixture() -> None:
    assert problems_of(live_process(), live_process("h:2", models={"coder": "large"})) == []


def test_a_fleet_of_another_version_than_this_shell_is_a_warning_about_this_shell() -> None:
    assert problems_of(live_process(), version="2.0") == [(CheckLevel.WARN, "this shell: version")]


def test_the_report_of_an_offline_fleet_names_the_setting_for_a_model() -> None:
    findings = findings_of(live_process(model="offline", server="", models={"writer": "offline"}))

    assert (findings[-1].level, findings[-1].about) == (CheckLevel.WARN, "model of the fleet")
    assert "ANTHROPIC_API_KEY" in findings[-1].fix


def test_an_announcement_that_cannot_be_read_is_a_warning_that_names_its_process() -> None:
    assert problems_of(LiveProcess("worker", "h:9", None)) == [(CheckLevel.WARN, "worker h:9")]


def test_no_terminal_escape_of_an_announcement_reaches_the_report() -> None:
    bad = "\x1b]0;x\x07\nfail"
    failed = ModelCalls(model=bad, failures=1, error=bad, failed_at=1.0)
    findings = findings_of(
        live_process(
            bad, node=bad, broker=bad, version=bad, server=bad, model=bad, calls=(failed,)
        ),
        live_process("h:2"),
    )

    text = "".join(f"{finding.about}{finding.report}{finding.fix}" for finding in findings)
    assert not {"\x1b", "\x07", "\n"} & set(text)


def test_a_queue_that_processes_leave_out_is_one_warning_with_the_remedy() -> None:
    processes = [
        live_process(name, "supervisor", refused_queues=("orders",)) for name in ("s1", "s2")
    ]

    findings = {finding.about: finding for finding in findings_of(*processes)}
    finding = findings["queue orders"]
    assert finding.level is CheckLevel.WARN
    assert finding.report == ("Redis does not let 2 supervisors use this queue, so its steps fail")
    assert finding.fix.startswith("`handoff keys init DIR --redis URL --specialist orders`")
