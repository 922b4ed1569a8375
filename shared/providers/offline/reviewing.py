"""The roles that check work: assessor, judge, grader and fact-checker. They count words,
sources and figures, and their answers say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.providers.offline.citations import (
    find_markers,
    find_open_gaps,
    iterate_unmarked_statements,
    parse_gaps,
)
from handoff_queue.shared.providers.offline.conversation import (
    OfflineClaim,
    RequestParts,
    Result,
    get_values,
    only_properties,
    parse_json_lines,
)
from handoff_queue.shared.providers.offline.request_text import extract_request, understand
from handoff_queue.shared.providers.offline.words import find_content_stems, find_stems, mentions

_MAX_QUOTED = 3
"""Most statements that a review names."""
_QUOTED_CHARS = 160
"""Characters of each named statement."""
_LOWEST, _HIGHEST = 1, 5
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


def assess(conversation: RequestParts) -> dict[str, Any]:
    """Return REVISE if statements lack sources or parts of the request are not covered, else
    PASS. The open points are gaps that the last result does not name.
    """
    results = conversation.results
    problems: dict[str, list[str]] = {}
    admitted_gaps: list[str] = []
    for result in results:
        problems[result.step] = _find_problems(result, results)
    if results:
        problems[results[-1].step] += _find_coverage_problems(conversation)
        admitted_gaps = [gap.text for gap in parse_gaps(results[-1].text)]
    revisions: list[dict[str, str]] = []
    for step, step_problems in problems.items():
        if step_problems:
            revisions.append({"step": step, "problem": " ".join(step_problems)})
    open_points: list[str] = []
    for gap in find_open_gaps(results):
        if gap.text not in admitted_gaps:
            open_points.append(str(gap))
    answer: dict[str, Any] = {
        "verdict": "REVISE" if revisions else "PASS",
        "revisions": revisions,
        "open_points": open_points,
        "scores": {},
    }
    return only_properties(answer, conversation.schema)


def settle_conflicts(conversation: RequestParts) -> dict[str, Any]:
    """Settle each conflict for the claim with the most sources. No claim stands if several
    claims have this number of sources.
    """
    settlements = []
    for conflict in parse_json_lines(conversation.task):
        counts: dict[str, int] = {}
        for claim in conflict["claims"]:
            counts[claim["id"]] = len({evidence["source"] for evidence in claim["evidence"]})
        stands = _find_highest(counts)
        why = "This claim has the most sources."
        if len(stands) != 1:
            stands, why = [], "No claim has more sources."
        settlements.append({"conflict": conflict["conflict"], "why": why, "stands": stands})
    return {"settlements": settlements}


def leave_points_undecided(conversation: RequestParts) -> dict[str, Any]:
    """Leave every point undecided, because this model cannot judge a text."""
    why = "The offline model cannot judge a text."
    rulings = []
    for line in parse_json_lines(conversation.task):
        rulings.append({"point": line["point"], "why": why, "right": "undecided"})
    return {"rulings": rulings}


def grade(conversation: RequestParts) -> dict[str, Any]:
    """Return the score of each answer by its share of the words of the right answer. Without a
    right answer, the words of the request count.
    """
    lines = parse_json_lines(conversation.task)
    references = get_values(lines, "reference") or [extract_request(conversation.task)]
    expected_stems = find_content_stems(references[0])
    is_duel = "better" in conversation.output_format.get("properties", {})
    scores: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for line in lines:
        if "text" not in line:
            continue
        count = len(expected_stems & find_stems(line["text"]))
        counts[line["answer"]] = count
        answer = {}
        if is_duel:
            answer = {"answer": line["answer"]}
        for criterion in get_values(lines, "criterion"):
            scores.append(
                {**answer, "criterion": criterion, **_build_score(count, len(expected_stems))}
            )
    output: dict[str, Any] = {"scores": scores}
    if is_duel:
        best = _find_highest(counts)
        output["better"] = best[0] if len(best) == 1 else "neither"
        output["why"] = "Counted, not judged: the answer with more of the words is better."
    return _build_counted_envelope(output)


def _build_score(count: int, expected: int) -> dict[str, Any]:
    """Return the score of an answer with `count` of the `expected` words, and its reason."""
    share = 0.0
    if expected:
        share = count / expected
    return {
        "why": f"Counted, not judged: the answer has {count} of {expected} words.",
        "score": _LOWEST + round((_HIGHEST - _LOWEST) * share),
    }


def check_facts(conversation: RequestParts) -> dict[str, Any]:
    """Return VETO if a claim has a figure that its quotes do not have. Without quotes, return
    CANNOT_SAY.
    """
    quoted_claims = 0
    wrong = []
    for claim in conversation.claims:
        if not any(claim.quotes):
            continue
        quoted_claims += 1
        if figures := _find_unquoted_figures(claim):
            wrong.append({"statement": claim.text, "why": f"no quote has {', '.join(figures)}"})
    verdict = "CANNOT_SAY"
    if wrong:
        verdict = "VETO"
    elif quoted_claims:
        verdict = "PASS"
    why = f"Counted, not judged: the figures of {quoted_claims} claims were looked for in quotes."
    return _build_counted_envelope({"verdict": verdict, "wrong": wrong, "why": why})


def _find_highest(counts: Mapping[str, int]) -> list[str]:
    """Return the keys with the highest count."""
    highest = max(counts.values(), default=0)
    return [key for key, count in counts.items() if count == highest]


def _find_problems(result: Result, results: tuple[Result, ...]) -> list[str]:
    """Return the problems of a result: no output, statements without a marker, or markers that
    point to no claim of any result.
    """
    if result.status == "needs_input":
        return []
    if result.status == "failed":
        return ["The step failed: do it again, or name the obstacle."]
    if not result.text.strip():
        return ["The output is empty."]
    problems = []
    if isinstance(result.output, str):
        for statement in list(iterate_unmarked_statements(result.output))[:_MAX_QUOTED]:
            problems.append(f'Cite or drop this statement: "{statement[:_QUOTED_CHARS]}"')
    known_ids: set[str] = set()
    for other in results:
        known_ids.update(claim.id for claim in other.claims)
    for claim in result.claims:
        known_ids.add(claim.id.partition(".")[2])
    unknown = sorted(find_markers(result.text) - known_ids)
    if known_ids and unknown:
        problems.append(f"These markers point to no claim: {', '.join(unknown)}.")
    return problems


def _find_coverage_problems(conversation: RequestParts) -> list[str]:
    """Return a problem for each part of a comparison that no result mentions, not even as a gap."""
    texts: list[str] = []
    for result in conversation.results:
        if result.status != "failed":
            texts.append(result.text)
    text = "\n".join(texts)
    asking = understand(extract_request(conversation.task))
    if not asking.subjects:
        return []
    problems = []
    for subject in asking.subjects:
        if not mentions(subject, text):
            problems.append(f"The request asks about {subject}: no result mentions it.")
    for aspect in asking.aspects:
        if not find_content_stems(aspect) & find_stems(text):
            problems.append(f"The request asks for {aspect}: cover it, or name it as not found.")
    return problems


def _find_unquoted_figures(claim: OfflineClaim) -> list[str]:
    """Return the figures of a claim that are in no quote of the claim."""
    quoted_figures: set[str] = set()
    for quote in claim.quotes:
        quoted_figures.update(_FIGURE.findall(quote))
    return [figure for figure in _FIGURE.findall(claim.text) if figure not in quoted_figures]


def _build_counted_envelope(output: dict[str, Any]) -> dict[str, Any]:
    """Return the answer envelope of an output. Its low confidence says that the model only
    counted.
    """
    envelope = {"status": "ok", "claims": [], "confidence": 0.1, "needs": None, "problem": None}
    return {**envelope, "output": output}
