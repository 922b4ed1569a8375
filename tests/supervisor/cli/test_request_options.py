"""Options become a request, or are refused before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import MissingCredentials, UserError
from handoff_queue.shared.types.job_options import Priority
from handoff_queue.supervisor.cli.interrupted_runs import (
    find_kept_job,
    forget,
    keep_run,
    read_worker_variables,
    restore,
)
from handoff_queue.supervisor.cli.request_options import (
    MAX_SCHEMA_BYTES,
    RequestOptions,
    build_limits,
    check_model,
    read_request,
    read_request_text,
    read_schema,
)
from handoff_queue.supervisor.cli.submit import parse_line_options
from handoff_queue.supervisor.cli.up import parse_workers
from handoff_queue.supervisor.client.submission import build_submission

KNOWN = ["analyst", "researcher", "writer"]


def test_a_request_that_is_not_text_is_refused() -> None:
    with pytest.raises(UserError, match="UTF-8"):
        read_request_text("\udcff", Settings())


def test_limits_have_the_given_values() -> None:
    limits = build_limits(RequestOptions("x", max_turns_per_handoff=3, max_usd=0.5, timeout_s=9))

    assert (limits.max_turns_per_handoff, limits.max_microusd, limits.max_seconds) == (
        3,
        500_000,
        9,
    )


def test_a_deadline_is_the_time_limit_of_a_job_and_needs_no_other() -> None:
    asked = RequestOptions("x", priority=Priority.BATCH, deadline_s=21_600)
    event = build_submission(
        read_request(asked, Settings(offline=True)), Settings(offline=True)
    ).event

    assert (event.limits.max_seconds, event.is_batched) == (21_600, True)
    with pytest.raises(UserError, match="--timeout and --deadline exclude each other"):
        read_request(replace(asked, timeout_s=60), Settings(offline=True))


def test_a_job_has_a_review_unless_its_options_or_its_workflow_leave_it_out(
    tmp_path: Path,
) -> None:
    workflow = tmp_path / "own.yaml"
    workflow.write_text("description: A test.\nsteps: [{id: a, specialist: writer, task: Write.}]")
    unreviewed = tmp_path / "unreviewed.yaml"
    unreviewed.write_text(f"review: false\n{workflow.read_text()}")

    def is_reviewed(**options: Any) -> bool:
        request = read_request(RequestOptions("x", **options), Settings(offline=True))
        return build_submission(request, Settings(offline=True)).event.is_reviewed

    assert is_reviewed()
    assert is_reviewed(workflow=str(workflow))
    assert not is_reviewed(no_review=True)
    assert not is_reviewed(no_review=True, workflow=str(workflow))
    assert not is_reviewed(workflow=str(unreviewed))


def test_a_schema_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "form.json").write_text("[]")

    with pytest.raises(UserError, match="JSON object"):
        read_schema(tmp_path / "form.json")


def test_a_name_that_a_schema_has_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "form.json").write_text(
        '{"type": "object", "properties": {"a": {"type": "string", "type": "number"}}}'
    )

    with pytest.raises(UserError, match=r"form\.json: 'type' is given twice; remove one"):
        read_schema(tmp_path / "form.json")


@pytest.mark.parametrize(
    "content", [b" " * MAX_SCHEMA_BYTES + b"{}", b"\xff{}", b"[" * 100_000, b""]
)
def test_a_schema_is_read_within_bounds_or_refused_in_one_line(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "form.json").write_bytes(content)

    with pytest.raises(
        UserError,
        match=r"form\.json (is larger than 200,000 bytes|is not UTF-8 text|is not JSON)[^\n]*$",
    ):
        read_schema(tmp_path / "form.json")


def test_a_real_model_needs_a_key_and_the_offline_one_does_not() -> None:
    check_model("offline", Settings())
    check_model(None, Settings())
    with pytest.raises(MissingCredentials, match="ANTHROPIC_API_KEY"):
        check_model("claude-haiku-5-5", Settings())


def test_an_additional_process_serves_all_other_specialists() -> None:
    assert parse_workers([], KNOWN) == {"worker1": [], "worker2": []}
    assert parse_workers(["researcher=2"], KNOWN) == {
        "researcher1": ["researcher"],
        "researcher2": ["researcher"],
        "others": ["analyst", "writer"],
    }


@pytest.mark.parametrize(
    "wrong", ["researcher", "researcher=0", "researcher=x", "reseacher=1", "=1", "researcher=999"]
)
def test_a_worker_option_that_is_wrong_is_refused(wrong: str) -> None:
    with pytest.raises(UserError):
        parse_workers([wrong], KNOWN)


def test_an_interrupted_run_is_kept_until_it_has_ended(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache")
    (tmp_path / "run" / "redis").mkdir(parents=True)
    (tmp_path / "run" / "redis" / "data").write_text("all of it")
    (tmp_path / "again").mkdir()

    assert keep_run(
        settings, "j-0123456789ab", tmp_path / "run" / "redis", {"HANDOFF_OFFLINE": "true"}
    )
    restore(settings, "j-0123456789ab", tmp_path / "again")
    assert (tmp_path / "again" / "redis" / "data").read_text() == "all of it"
    assert read_worker_variables(settings, "j-0123456789ab") == {"HANDOFF_OFFLINE": "true"}

    forget(settings, "j-0123456789ab")
    with pytest.raises(UserError, match="none"):
        find_kept_job(settings, "j-0123456789ab")


def test_a_line_of_a_file_of_jobs_takes_durations_with_units() -> None:
    line = '{"request": "x", "timeout": "1h30m", "approve_timeout": "7d"}'

    options = parse_line_options(line, RequestOptions(""))

    assert (options.timeout_s, options.approve_timeout_s) == (5_400, 604_800)
    assert parse_line_options('{"request": "x", "timeout": 90}', RequestOptions("")).timeout_s == 90


@pytest.mark.parametrize("field", ["timeout", "approve_timeout"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [("soon", "'soon' is not a duration: write"), ("500ms", "'500ms' must be a whole"), ("0s", "must be at least 1")],  # noqa: E501
)  # fmt: skip
def test_a_wrong_duration_in_a_line_is_named_with_its_field(
    field: str, value: str, problem: str
) -> None:
    with pytest.raises(UserError, match=f"^{field}: {problem}[^\n]*$"):
        parse_line_options(json.dumps({"request": "x", field: value}), RequestOptions(""))


@pytest.mark.parametrize(
    "field", ["docs", "model", "tenant", "webhook", "workflow", "items", "after"]
)
def test_an_empty_text_in_a_line_is_refused(field: str) -> None:
    with pytest.raises(UserError, match=f"^{field}: it is empty: give it a value"):
        parse_line_options(json.dumps({"request": "x", field: " "}), RequestOptions(""))


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("text", "request$"),
        ("documents", "docs$"),
        ("limits", "its fields in the line itself, such as max_turns or max_usd$"),
    ],
)
def test_a_field_of_another_interface_is_answered_with_its_name_in_a_line(
    field: str, advice: str
) -> None:
    with pytest.raises(UserError, match=f"{field}: there is no such field: write {advice}"):
        parse_line_options(json.dumps({"request": "x", field: "y"}), RequestOptions(""))


def test_an_unknown_field_of_a_line_is_answered_with_the_closest() -> None:
    with pytest.raises(UserError, match="reqest: there is no such field: did you mean request"):
        parse_line_options('{"reqest": "x"}', RequestOptions(""))
    with pytest.raises(UserError, match=r"colour: there is no such field: use one of"):
        parse_line_options('{"request": "x", "colour": "red"}', RequestOptions(""))
