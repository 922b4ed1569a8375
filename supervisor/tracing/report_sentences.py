"""What a report says besides the answer, as sentences for a page: verdicts, gaps, contradictions, changes of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handoff_queue.supervisor.client.plan_diff import in_words
from handoff_queue.supervisor.client.report import JobResult

_HIGHEST = 5


def told_of(report: JobResult) -> dict[str, Any]:
    """Return what is told below the answer, by its heading: sentences, or rows of a table."""
    plan = report.plan or {}
    return {
        "gaps": [_gap(one) for one in report.gaps],
        "verdicts": [line for one in report.verdicts for line in _verdict(one)],
        "conflicts": [_conflict(one) for one in report.conflicts],
        "gates": list(_gates(report.gates)) if report.gates else [],
        "changes of the plan": [f"{in_words(one)}." for one in report.patches],
        "approvals": [_approval(one) for one in report.approvals],
        "route": _route(report.route) if report.route else [],
        "plan": [_step(one) for one in plan.get("steps", ())],
        "notes": [*([plan["why"]] if plan.get("why") else []), *report.notes],
    }


def _gap(gap: Mapping[str, Any]) -> str:
    cost = gap["likely_usd"]
    price = f" It would cost about ${cost:.4f}." if cost else ""
    return f"{gap['step']} ({gap['specialist']}): {gap['why']}.{price}"


def _verdict(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the decision of a round, then what was sent back, left open and scored."""
    round_ = f"Round {verdict['round']}"
    match verdict["verdict"]:
        case "PASS":
            yield f"{round_}: the reviewer passed the results."
        case "REVISE":
            yield f"{round_}: the reviewer sent work back."
        case _:
            yield f"{round_}: there is no verdict ({verdict.get('problem') or 'no reason is known'})."
    if verdict.get("checked"):
        yield f"{round_}: {verdict['checked']}."
    for one in verdict["revisions"]:
        yield f"{round_}, sent back: {one['step']}: {one['problem']}"
    for point in verdict["open_points"]:
        yield f"{round_}, open: {point}"
    for one in verdict["scores"]:
        of = f" of {one['step']}" if one["step"] else ""
        why = f": {one['why']}" if one["why"] else "."
        yield f"{round_}, {one['criterion']}{of}: {one['score']} of {_HIGHEST}{why}"


def _conflict(conflict: Mapping[str, Any]) -> str:
    claims = "; ".join(f"\u201c{one['text']}\u201d ({one['id']})" for one in conflict["claims"])
    stands = ", ".join(conflict["stands"])
    end = f"{stands} stands" if stands else "it is disputed"
    return f"Not all of these can be right: {claims}. Decision: {end}. {conflict['why']}".strip()


def _gates(gates: Mapping[str, Any]) -> Iterator[str]:
    for number, look in enumerate(gates.get("looks", ()), start=1):
        vetoes = "; ".join(look["vetoes"])
        yield f"Check {number}: {vetoes}" if vetoes else f"Check {number}: the answer passed."
    for number, check in enumerate(gates.get("fact_checks", ()), start=1):
        wrong = "; ".join(f"\u201c{one['statement']}\u201d: {one['why']}" for one in check["wrong"])
        end = check.get("problem") or "no statement was found to be wrong"
        yield f"Fact check {number}: {wrong or end}"


def _approval(approval: Mapping[str, Any]) -> str:
    decision = approval["decision"] or "waits for a person"
    by = f" by {approval['by']}" if approval.get("by") else ""
    note = f": {approval['note']}" if approval.get("note") else ""
    why = f" ({approval['why']})" if approval.get("why") else ""
    return f"Approval of the {approval['what']}{why}: {decision}{by}{note}"


def _route(route: Mapping[str, Any]) -> list[str]:
    who = f"The specialist {route['specialist']}" if route["specialist"] else "A team"
    why = route["problem"] or route["why"]
    return [f"{who} got the job{f': {why}' if why else ''}"]


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": step["id"],
        "title": step.get("title") or "",
        "specialist": step["specialist"],
        "after": ", ".join(step.get("depends_on", ())),
        "task": step["task"],
    }
