"""The roles that check work: assessor, judge, grader and fact checker. They count, and say so."""

from __future__ import annotations

import re
from typing import Any

from handoff_queue.shared.providers.offline.citations import (
    NOT_FOUND,
    gaps_in,
    markers_in,
    unmarked_statements,
)
from handoff_queue.shared.providers.offline.conversation import (
    Claim,
    Conversation,
    Result,
    lines_of_json,
)
from handoff_queue.shared.providers.offline.request_text import request_in, understand
from handoff_queue.shared.providers.offline.words import content_stems, mentions, stems_of

_MOST_QUOTED = 3
_QUOTED_CHARS = 160
_LOWEST, _HIGHEST = 1, 5
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


def assess(conversation: Conversation) -> dict[str, Any]:
    """Look for statements without sources, and for parts of the request that are not covered."""
    results = conversation.results
    problems = {result.step: _problems_of(result, results) for result in results}
    if results:
        problems[results[-1].step] += _uncovered(conversation)
    revisions: list[dict[str, str]] = []
    for step, found in problems.items():
        if found:
            revisions.append({"step": step, "problem": " ".join(found)})
    if results:
        admitted = gaps_in(results[-1].text)
    else:
        admitted = []
    gaps = dict.fromkeys(gap for result in results for gap in gaps_in(result.text))
    points = [f"{NOT_FOUND}: {gap}" for gap in gaps if gap not in admitted]
    verdict = "PASS"
    if revisions:
        verdict = "REVISE"
    scores: list[Any] = []
    answer = {"verdict": verdict, "revisions": revisions, "open_points": points, "scores": scores}
    fields = conversation.schema.get("properties", {})
    values: dict[str, Any] = {}
    for key, value in answer.items():
        if key in fields:
            values[key] = value
    return values


def settle_conflicts(conversation: Conversation) -> dict[str, Any]:
    """Let the claim with the most sources stand. Without such a claim, nothing stands."""
    settlements = []
    for conflict in lines_of_json(conversation.task):
        counts = {}
        for claim in conflict["claims"]:
            counts[claim["id"]] = len({evidence["source"] for evidence in claim["evidence"]})
        most = max(counts.values())
        best = [claim for claim, count in counts.items() if count == most]
        why = "No claim has more sources."
        if len(best) == 1:
            why = "This claim has the most sources."
        if len(best) == 1:
            stands = best
        else:
            stands = []
        settlements.append({"conflict": conflict["conflict"], "why": why, "stands": stands})
    return {"settlements": settlements}


def rule_on_points(conversation: Conversation) -> dict[str, Any]:
    """Leave every point undecided: only a reader can decide who is right about a text."""
    why = "The offline model cannot judge a text."
    rulings = []
    for line in lines_of_json(conversation.task):
        rulings.append({"point": line["point"], "why": why, "right": "undecided"})
    return {"rulings": rulings}


def grade(conversation: Conversation) -> dict[str, Any]:
    """Score answers by the share of words of the right answer, or of the request, that they have."""
    lines = lines_of_json(conversation.task)
    references = [line["reference"] for line in lines if "reference" in line]
    wanted = content_stems(references[0] if references else request_in(conversation.task))
    criteria = [line["criterion"] for line in lines if "criterion" in line]
    is_duel = "better" in conversation.output_format.get("properties", {})
    scores = []
    counts: dict[str, int] = {}
    for line in lines:
        if "text" not in line:
            continue
        count = len(wanted & stems_of(line["text"]))
        counts[line["answer"]] = count
        share = 0.0
        if wanted:
            share = count / len(wanted)
        why = f"Counted, not judged: the answer has {count} of {len(wanted)} words."
        score = {"why": why, "score": _LOWEST + round((_HIGHEST - _LOWEST) * share)}
        if is_duel:
            which = {"answer": line["answer"]}
        else:
            which = {}
        for criterion in criteria:
            scores.append({**which, "criterion": criterion, **score})
    output: dict[str, Any] = {"scores": scores}
    if is_duel:
        best = [answer for answer, count in counts.items() if count == max(counts.values())]
        if len(best) == 1:
            output["better"] = best[0]
        else:
            output["better"] = "neither"
        output["why"] = "Counted, not judged: the answer with more of the words is better."
    return _counted(output)


def check_facts(conversation: Conversation) -> dict[str, Any]:
    """Look for the figures of each claim in the quotes of the claim."""
    claims = [claim for result in conversation.results for claim in result.claims]
    quoted = [claim for claim in claims if any(claim.quotes)]
    wrong = []
    for claim in quoted:
        if odd := _unquoted_figures(claim):
            wrong.append({"statement": claim.text, "why": f"no quote has {', '.join(odd)}"})
    verdict = "CANNOT_SAY"
    if quoted:
        verdict = "PASS"
    why = f"Counted, not judged: the figures of {len(quoted)} claims were looked for in quotes."
    return _counted({"verdict": "VETO" if wrong else verdict, "wrong": wrong, "why": why})


def _problems_of(result: Result, results: tuple[Result, ...]) -> list[str]:
    if result.status == "needs_input":
        return []
    if result.status == "failed":
        return ["The step failed: do it again, or say what stands in its way."]
    if not result.text.strip():
        return ["The output is empty."]
    problems = []
    if isinstance(result.output, str):
        for statement in list(unmarked_statements(result.output))[:_MOST_QUOTED]:
            problems.append(f'Cite or drop this statement: "{statement[:_QUOTED_CHARS]}"')
    known = {claim.id for other in results for claim in other.claims}
    known |= {claim.id.partition(".")[2] for claim in result.claims}
    unknown = sorted(markers_in(result.text) - known)
    if known and unknown:
        problems.append(f"These markers point to no claim: {', '.join(unknown)}.")
    return problems


def _uncovered(conversation: Conversation) -> list[str]:
    """Return the parts of a comparison that no result has, not even as a gap."""
    texts = "\n".join(each.text for each in conversation.results if each.status != "failed")
    asking = understand(request_in(conversation.task))
    missing = []
    for thing in asking.things:
        if not mentions(thing, texts):
            missing.append(f"The request asks about {thing}: no result mentions it.")
    for aspect in asking.aspects if asking.things else ():
        if not content_stems(aspect) & stems_of(texts):
            missing.append(f"The request asks for {aspect}: cover it, or name it as not found.")
    return missing


def _unquoted_figures(claim: Claim) -> list[str]:
    quoted = {figure for quote in claim.quotes for figure in _FIGURE.findall(quote)}
    return [figure for figure in _FIGURE.findall(claim.text) if figure not in quoted]


def _counted(output: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope of an output that was counted."""
    envelope = {"status": "ok", "claims": [], "confidence": 0.1, "needs": None, "problem": None}
    return {**envelope, "output": output}
