"""The printed answer is complete, printed once, and harmless to a terminal."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from pydantic import JsonValue
from rich.console import Console

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import Citation, Claim
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.cli.display.answer import (
    _render_plan,
    build_account,
    describe_verdict,
    format_sources,
    format_total,
    print_answer,
)
from handoff_queue.supervisor.cli.display.job_report import format_readable, print_everything
from handoff_queue.supervisor.client.answer_draft import get_stable_part
from handoff_queue.supervisor.client.job_result import JobResult

MEASURED = {"calls": 0, "tokens": 0, "cost_usd": 0.0}
USAGE = {"turns": 1, "input_tokens": 1_200, "output_tokens": 34, "cost_usd": None, "cut": MEASURED}
CUT = {
    "turns": 2,
    "input_tokens": 9_000,
    "output_tokens": 500,
    "cost_usd": 0.0123,
    "cut": {"calls": 1, "tokens": 8_200, "cost_usd": 0.011},
}
SOURCE = {
    "n": 1,
    "source": "a.md",
    "digest": "d",
    "start": 0,
    "end": 4,
    "quote": "It\nis so.",
    "claim": "so",
    "step": "left",
}
CLAIM = Claim(
    id="left.c1",
    text="so",
    sources=(Citation(source="a.md", digest="a" * 64, start=0, end=4, quote="It is"),),
)


def result(answer: JsonValue = "It is so [1].", status: JobStatus = JobStatus.OK) -> JobResult:
    return JobResult(
        job_id="j-0123456789ab",
        status=status,
        answer=answer,
        citations=(SOURCE,),
        usage=USAGE,
        wall_s=1.25,
        model="m",
    )


def rendered(outcome: JobResult, columns: int = 120) -> str:
    written = StringIO()
    console = Console(file=written, width=columns, highlight=False, markup=False, emoji=False)
    console.print(build_account(outcome))
    return written.getvalue()


def test_the_sources_follow_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(result())

    assert capsys.readouterr().out == 'It is so [1].\n\nSources:\n[1] a.md: "It is so."\n'


def test_a_handoff_with_a_copied_result_names_the_job_that_paid_for_it() -> None:
    handoff = {"handoff_id": "left.1", "assigned_to": "writer", "usage": {"turns": 0}}
    shared = {"job_id": "j-abcdef012345", "handoff_id": "left.1"}
    copied = {"handoff_id": "left.1", "status": "ok", "shared": shared}
    outcome = result().model_copy(update={"handoffs": (handoff,), "results": (copied,)})

    assert "ok, shared with j-abcdef012345" in rendered(outcome)


def test_a_handoff_that_ran_again_has_its_lost_claims_in_the_table() -> None:
    handoff = {"handoff_id": "left.1", "assigned_to": "writer", "lost_claims": 1}
    ended = {"handoff_id": "left.1", "status": "ok"}
    outcome = result().model_copy(update={"handoffs": (handoff,), "results": (ended,)})

    assert "ok, 1 lost claim" in rendered(outcome)


QUOTE = {
    "cost": {"likely_usd": 0.01, "most_usd": 0.03},
    "time": {"likely_s": 8.0, "most_s": 12.0},
    "handoffs": 9,
    "jobs": 20,
}


def test_a_quote_is_compared_with_working_time_without_waits_for_a_person() -> None:
    outcome = result().model_copy(
        update={"quote": QUOTE, "usage": CUT, "wall_s": 198.3, "worked_s": 9.04}
    )
    line = (
        "quoted: $0.0100 likely, $0.0300 at most; 8.0 s likely, 12.0 s at most; it took ≤ $0.0123"
        " and 9.0 s of work"
    )

    assert f"{line} (of 198.3 s, with waits for a person and the time after its end)" in rendered(
        outcome, 300
    )
    assert f"{line}\n" in rendered(outcome.model_copy(update={"wall_s": 9.1}), 300).replace(
        " \n", "\n"
    )


def test_a_streamed_answer_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(result(), streamed="It is")

    assert capsys.readouterr().out.startswith(" so [1].\n")


def test_a_draft_that_was_changed_is_followed_by_the_whole_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_answer(result(), streamed="It was")

    assert "---\n\nIt is so [1].\n" in capsys.readouterr().out


def test_the_value_of_a_schema_is_alone_on_stdout_and_its_sources_are_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_answer(result({"so": True}))

    written = capsys.readouterr()
    assert json.loads(written.out) == {"so": True}
    assert '[1] a.md: "It is so."' in written.err


def test_a_form_that_is_a_string_is_a_json_string_alone_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_answer(result('It is "so" [1].').model_copy(update={"asked_for_a_form": True}))

    written = capsys.readouterr()
    assert json.loads(written.out) == 'It is "so" [1].'
    assert "Sources:" in written.err


def test_the_requested_form_of_the_answer_is_not_a_key_of_the_result() -> None:
    assert "asked_for_a_form" not in json.loads(result().to_json())


def test_escapes_in_an_answer_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(result("red \x1b[31mor\x9b2J not\u202e"))

    assert not {"\x1b", "\x9b", "\u202e"} & set(capsys.readouterr().out)


def test_a_document_name_takes_one_line_of_the_sources() -> None:
    forged = result().model_copy(
        update={"citations": ({"n": 1, "source": 'a.md: "x"\n[2] bank.md', "quote": "It works."},)}
    )

    assert format_sources(forged).splitlines() == [
        "Sources:",
        '[1] a.md: "x" [2] bank.md: "It works."',
    ]


def test_an_unknown_price_is_never_zero() -> None:
    assert (
        format_total(result())
        == "j-0123456789ab  ok  1.2 s  1 turn  1,200 + 34 tokens  cost unknown  m"
    )
    assert format_sources(JobResult(job_id="j-0123456789ab", status=JobStatus.OK)) == ""


def test_totals_with_a_cut_call_are_upper_bounds_and_name_the_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handoff = {"handoff_id": "left.1", "assigned_to": "researcher", "worker": "vm:1", "usage": CUT}
    outcome = {"handoff_id": "left.1", "status": "ok"}
    cut = result().model_copy(update={"usage": CUT, "handoffs": (handoff,), "results": (outcome,)})

    assert (
        format_total(cut)
        == "j-0123456789ab  ok  1.2 s  2 turns  ≤ 9,000 + 500 tokens  ≤ $0.0123  m"
    )
    assert (
        rendered(cut).splitlines()[-2]
        == "1 call was cut off, and counted at its upper bound: 8,200 tokens, $0.0110"
    )
    row = next(line for line in rendered(cut).splitlines() if line.startswith("left.1"))
    assert row.split() == "left.1 researcher ok 2 ≤ 9,000 ≤ 500 ≤ $0.0123 vm:1".split()
    print_everything(cut, [])
    assert "1 call was cut off" in capsys.readouterr().out


def test_the_tenant_of_a_job_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_everything(
        result().model_copy(
            update={"tenant": "ann", "priority": Priority.BATCH, "mode": Mode.ADAPTIVE}
        ),
        [],
    )

    assert capsys.readouterr().out.splitlines()[:2] == [
        "=== j-0123456789ab  ok",
        "mode adaptive, tenant ann, batch",
    ]


@pytest.mark.parametrize(
    ("status", "expected_text"),
    [
        (
            JobStatus.WAITING,
            (
                "the job waits for an approval of its plan by a person: `handoff approve"
                " j-0123456789ab`"
            ),
        ),
        (JobStatus.CANCELLED, "=== approval of the plan: closed"),
    ],
)
def test_a_job_waits_for_a_person_until_it_has_ended(
    status: JobStatus, expected_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = "closed" if status.has_ended else None
    approval = {"what": "plan", "decision": decision, "version": 4}
    waits = (
        "the job waits for an approval of its plan by a person: `handoff approve j-0123456789ab`",
    )
    fields = {
        "status": status,
        "approvals": (approval,),
        "waits_for": () if status.has_ended else waits,
    }
    print_everything(result().model_copy(update=fields), [])

    shown = capsys.readouterr().out
    assert expected_text in shown
    assert ("it waits" in shown) == ("waits for" in shown) == (not status.has_ended)


def handoff_report(columns: int) -> str:
    """Return the report of a handoff whose table is about 120 columns wide."""
    handoff = {
        "handoff_id": "research_the_first_thing.1",
        "assigned_to": "researcher",
        "worker": "a-host-with-a-name:12345",
    }
    outcome = {"handoff_id": handoff["handoff_id"], "status": "ok"}
    changes = {
        "handoffs": ({**handoff, "usage": CUT, "started_at": 100.0, "finished_at": 101.5},),
        "results": (outcome,),
    }
    return rendered(result().model_copy(update=changes), columns)


def test_on_a_narrow_terminal_no_id_is_cut_and_no_figure_is_lost() -> None:
    narrow = handoff_report(60)

    assert max(map(len, narrow.splitlines())) <= 60
    lines = narrow.splitlines()
    assert lines[0].rstrip() == "research_the_first_thing.1  researcher  ok"
    assert " ".join(" ".join(lines[1:3]).split()).startswith(
        "2 turns ≤ 9,000 + ≤ 500 tokens ≤ $0.0123 1.50 s a-host-with-a-name:12345"
    )
    assert any(line.startswith("j-0123456789ab  ok") for line in lines)


def test_on_a_wide_terminal_the_handoffs_are_one_table() -> None:
    assert (
        handoff_report(160).splitlines()[0].split()
        == "handoff by state turns in out cost seconds worker".split()
    )


def result_of_repeated_step(copies: int) -> JobResult:
    names = [f"page_{number:04d}" for number in range(1, copies + 1)]
    steps = [
        {"id": name, "specialist": "reader", "depends_on": [], "task": "Read it."} for name in names
    ]
    steps.append({"id": "sum", "specialist": "writer", "depends_on": names, "task": "Sum it up."})
    handoffs = [
        {"handoff_id": f"{step['id']}.1", "assigned_to": step["specialist"], "usage": USAGE}
        for step in steps
    ]
    outcomes = [
        {
            "handoff_id": handoff["handoff_id"],
            "status": "failed" if handoff["handoff_id"] == "page_0007.1" else "ok",
        }
        for handoff in handoffs
    ]
    return result().model_copy(
        update={"plan": {"steps": steps}, "handoffs": tuple(handoffs), "results": tuple(outcomes)}
    )


@pytest.mark.parametrize("columns", [60, 160])
def test_the_copies_of_a_repeated_step_are_one_line_each_in_the_plan_and_among_the_handoffs(
    columns: int,
) -> None:
    lines = [
        " ".join(line.split())
        for line in rendered(result_of_repeated_step(2_000), columns).splitlines()
    ]

    assert len(lines) < 25
    text = " ".join(lines)
    assert "page_0001 to page_2000 · reader: 2,000 steps" in text
    assert (
        "page_0001 to page_2000: 2,000 handoffs, 1,999 ok, 1 failed; `handoff show j-0123456789ab"
        " --full` has each" in text
    )
    assert any(line.startswith("sum.1 writer ok") for line in lines)
    assert "(after page_0001 to page_2000)" in text


def test_the_line_of_many_copies_has_the_number_of_their_lost_claims() -> None:
    outcome = result_of_repeated_step(2_000)
    outcome.handoffs[3]["lost_claims"] = 2

    assert "2,000 handoffs, 1,999 ok, 1 failed, 2 lost claims; " in rendered(outcome, 160)


def test_copies_that_fit_the_screen_have_one_line_each() -> None:
    lines = rendered(result_of_repeated_step(30), 160).splitlines()

    assert sum(line.startswith("page_") and ".1 " in line for line in lines) == 30


def test_the_output_of_show_is_folded_to_the_screen() -> None:
    text = format_readable({"task": "word " * 40}, columns=60)

    assert max(map(len, text.splitlines())) <= 60


def test_measured_totals_are_not_marked_as_bounds() -> None:
    assert "≤" not in rendered(result())
    assert "cut" not in rendered(result())


def test_a_job_that_failed_without_documents_names_the_option_for_documents() -> None:
    needy: dict[str, Any] = {"handoff_id": "a.1", "status": "needs_input"}
    failed = result(status=JobStatus.FAILED).model_copy(
        update={"results": (needy,), "notes": ("needs: documents about HNSW",)}
    )

    assert str(describe_verdict(failed)).endswith(
        "failed: needs: documents about HNSW: no documents were given (--docs DIR)"
    )
    given = failed.model_copy(
        update={"handoffs": ({"handoff_id": "a.1", "artifacts": [{"kind": "documents"}]},)}
    )
    assert str(describe_verdict(given)).endswith("failed: needs: documents about HNSW")


@pytest.mark.parametrize(
    "needs",
    [
        "the order's number",
        "documents about A-1042; the last error of the tool order_status: it is not set up",
    ],
)
def test_a_job_that_lacks_something_else_than_documents_does_not_name_the_option(
    needs: str,
) -> None:
    needy: dict[str, Any] = {"handoff_id": "a.1", "status": "needs_input"}
    failed = result(status=JobStatus.FAILED).model_copy(
        update={"results": (needy,), "notes": (f"needs: {needs}",)}
    )

    assert str(describe_verdict(failed)).endswith(f"failed: needs: {needs}")


def test_only_an_outcome_that_is_not_ok_gets_a_remark() -> None:
    assert describe_verdict(result()) is None
    assert "partial" in (describe_verdict(result(status=JobStatus.PARTIAL)) or "")


def test_a_run_on_a_private_redis_names_no_command_that_cannot_reach_it() -> None:
    partial = result(status=JobStatus.PARTIAL).model_copy(update={"gaps": (GAP,)})
    silent = result(status=JobStatus.FAILED).model_copy(update={"notes": ()})

    for outcome in (partial, silent):
        assert "`handoff" in str(describe_verdict(outcome))
        assert "`handoff" not in str(describe_verdict(outcome, is_private=True))


GAP = {"step": "left", "specialist": "researcher", "why": "it did not run", "likely_usd": None}


@pytest.mark.parametrize(
    ("answer", "outcome_fields", "hint"),
    [
        ("So.", {"has_open_points": True}, "the answer names the missing and open points"),
        ({"so": 1}, {"has_open_points": True}, "the notes name the missing and open points"),
        (
            "So.",
            {"notes": ("No usable plan was made: one specialist got the whole request.",)},
            "the notes say why",
        ),
        (
            "So.",
            {"gaps": (GAP,)},
            (
                "the answer names the missing and open points (`handoff retry j-0123456789ab` runs"
                " 1 step again)"
            ),
        ),
    ],
)
def test_a_partial_outcome_names_the_place_of_its_reasons(
    answer: JsonValue, outcome_fields: dict[str, Any], hint: str
) -> None:
    outcome = result(answer, JobStatus.PARTIAL).model_copy(update=outcome_fields)

    assert describe_verdict(outcome) == f"j-0123456789ab is partial: {hint}"


@pytest.mark.parametrize(
    ("draft", "shown"),
    [
        ("It is so", "It is so"),
        ("It is so [left.c1]. And", "It is so [1]. And"),
        ("It is so [left.c", "It is so "),
        ("It is so [left.c1] and [own.c1] more", "It is so [1] and "),
    ],
)
def test_a_draft_is_shown_up_to_its_stable_part(draft: str, shown: str) -> None:
    assert get_stable_part(draft, {CLAIM.id: CLAIM}) == shown


def test_a_wrapped_line_of_a_plan_stays_indented() -> None:
    step = {"id": "a", "specialist": "writer", "depends_on": ["b"], "task": "Compare. " * 20}
    console = Console(file=StringIO(), width=40)

    console.print(_render_plan({"steps": [step]}))

    heading, *lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert heading == "plan: 1 step"
    assert len(lines) > 1
    assert all(line.startswith("  ") for line in lines)
