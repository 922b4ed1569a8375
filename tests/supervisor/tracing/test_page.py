"""The page of a trace is self-contained, and foreign text in it is never markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from handoff_queue.shared.store.handoff_info import ClaimEnd
from handoff_queue.shared.types.checkpoints import ContextCleared
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.client.job_result import build_report
from handoff_queue.supervisor.tracing.page import TracedJob, build_tree, find_absent, render_page
from handoff_queue.supervisor.tracing.timeline import build_timeline
from tests.supervisor.tracing.job_record_builder import JOB, JobRecordBuilder

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{style}} \u2028 &amp;"


def page_for(builder: JobRecordBuilder) -> str:
    record = builder.record()
    return render_page(
        [TracedJob(record, build_report(record), build_timeline(record), [(0.0, HOSTILE)])],
        "handoff-queue 0",
    )


def hostile_job() -> JobRecordBuilder:
    builder = JobRecordBuilder(HOSTILE)
    builder.role("planner", (0, 0, 1), task=HOSTILE, output=HOSTILE)
    return builder


def embedded_data(text: str) -> dict[str, Any]:
    block = LexborHTMLParser(text).css_first("#data")
    assert block is not None
    payload: dict[str, Any] = json.loads(block.text())
    return payload


def test_foreign_text_cannot_end_the_data_block() -> None:
    assert len(LexborHTMLParser(page_for(hostile_job())).css("script")) == 2
    assert LexborHTMLParser(page_for(hostile_job())).css("img") == []


def test_foreign_text_is_read_from_the_data_block_unchanged() -> None:
    (job,) = embedded_data(page_for(hostile_job()))["jobs"]

    assert (job["id"], job["story"]) == (JOB, [[0.0, HOSTILE]])
    assert json.loads(job["payloads"][job["bars"][0]["result"]])["output"] == HOSTILE


def test_the_page_contains_no_control_character_for_a_terminal_or_a_browser() -> None:
    builder = JobRecordBuilder("x\0 \x1b]0;T\x07 \x9b31m \u202e rev")
    builder.role("planner", (0, 0, 1), task="\u202e", output="\x9b31m")

    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page_for(builder))


def test_the_page_has_the_share_of_the_cached_input_and_the_money_that_it_saved() -> None:
    used = Usage(
        input_tokens=400,
        cache_read_tokens=300,
        cache_saved_microusd=50_000,
        cache_surcharge_microusd=20_000,
    )
    builder = JobRecordBuilder()
    builder.step("find", (0, 0, 1), usage=used)
    (job,) = embedded_data(page_for(builder))["jobs"]
    (without,) = embedded_data(page_for(hostile_job()))["jobs"]

    assert job["cache"] == {"share": 0.75, "saved_usd": 0.03}
    assert without["cache"] is None


def test_a_result_with_cached_input_but_without_input_has_no_share() -> None:
    """A worker that was taken over may write any figures."""
    builder = JobRecordBuilder()
    builder.step("find", (0, 0, 1), usage=Usage(cache_read_tokens=300))

    (job,) = embedded_data(page_for(builder))["jobs"]

    assert job["cache"] is None


def test_the_browser_may_run_the_one_script_apply_the_one_style_and_load_nothing() -> None:
    text = page_for(hostile_job())
    head = LexborHTMLParser(text).css_first("meta[http-equiv]")
    policy = (head.attributes["content"] if head else None) or ""

    for kind in ("script", "style"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert inside
        assert (
            f"{kind}-src"
            f" 'sha256-{base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()}'"
            in policy
        )
    assert policy.startswith("default-src 'none'")


def test_the_page_refers_to_no_other_address() -> None:
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page_for(hostile_job()))


def test_the_page_says_how_many_results_of_a_handoff_were_cleared() -> None:
    builder = JobRecordBuilder()
    builder.step("find", (0, 0, 1))
    record = builder.record()
    turns = {HandoffId("find.1"): [ContextCleared(tool_use_ids=("a", "b"), tokens=3_000)]}
    traced = TracedJob(record, build_report(record), build_timeline(record), [], turns=turns)

    (job,) = embedded_data(render_page([traced], "handoff-queue 0"))["jobs"]

    assert job["contexts"] == {"find.1": "2 results cleared, about 3,000 tokens"}


def test_tokens_and_money_are_summed_for_each_specialist() -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 1, 3))
    builder.step("b", (0, 0, 2))

    (figures,) = embedded_data(page_for(builder))["jobs"][0]["specialists"]

    assert (figures["agent"], figures["handoffs"], figures["tokens"], figures["usd"]) == (
        "researcher",
        2,
        240,
        0.003,
    )
    assert (figures["busy_s"], figures["waited_s"]) == (4, 1)


def test_time_without_a_claim_is_waiting_time_and_the_data_names_each_lost_process() -> None:
    builder = JobRecordBuilder()
    builder.step("a", (0, 1, 30))
    builder.past_claims("a", (1, 6, ClaimEnd.LOST), (10, 12, ClaimEnd.RELEASED), last_claim_at=21)

    (job,) = embedded_data(page_for(builder))["jobs"]

    assert [
        (specialist["busy_s"], specialist["waited_s"]) for specialist in job["specialists"]
    ] == [(5 + 2 + 9, 1 + 4 + 9)]
    (bar,) = job["bars"]
    assert [
        (claim["worker"], claim["began_at"], claim["ended_at"], claim["left"])
        for claim in bar["past_claims"]
    ] == [
        ("w10@host:6", 1, 6, "lost"),
        ("w11@host:6", 10, 12, "released"),
        ("w1@host:7", 21, 30, ""),
    ]


def test_an_open_claim_counts_as_work_and_an_unclaimed_handoff_as_waiting() -> None:
    builder = JobRecordBuilder()
    builder.running("a", (0, 2))
    builder.running("b", (0, 0))
    builder.past_claims("b", (0, 3, ClaimEnd.DEFERRED), last_claim_at=None)

    record = builder.record(until=10)
    (job,) = embedded_data(
        render_page(
            [TracedJob(record, build_report(record), build_timeline(record), [])], "handoff-queue 0"
        )
    )["jobs"]

    assert [
        (specialist["busy_s"], specialist["waited_s"]) for specialist in job["specialists"]
    ] == [(8 + 3, 2 + 7)]


def test_a_job_that_claims_to_be_its_own_child_is_shown_once() -> None:
    record = JobRecordBuilder().record()
    line = build_timeline(record)
    bar = replace(build_timeline(hostile_job().record()).bars[0], child=JOB)
    traced = TracedJob(record, build_report(record), replace(line, bars=(bar,)))

    assert build_tree({JOB: traced}, JOB) == [traced]


def test_a_deleted_job_of_a_tree_is_left_out_and_named() -> None:
    child = JobId("j-ba9876543210")
    record = hostile_job().record()
    line = build_timeline(record)
    traced = TracedJob(
        record, build_report(record), replace(line, bars=(replace(line.bars[0], child=child),))
    )

    assert build_tree({JOB: traced}, JOB) == [traced]
    assert find_absent([traced]) == [child]
    assert embedded_data(render_page([traced], "handoff-queue 0"))["absent"] == [child]
