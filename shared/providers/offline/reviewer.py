"""The reviewer's part: code looks for statements without sources and for parts of the request
that are not covered.

It judges nothing, and gives no scores.
"""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.providers.offline.aspects import aspect
from handoff_queue.shared.providers.offline.conversation import Conversation, Result
from handoff_queue.shared.providers.offline.request_questions import Asking, request_in, understand
from handoff_queue.shared.providers.offline.schema_parts import property_schema
from handoff_queue.shared.providers.offline.statements import (
    NOT_FOUND,
    gaps_in,
    markers_in,
    unmarked_statements,
)
from handoff_queue.shared.providers.offline.topic import mentions

_MOST_QUOTED = 3
_QUOTED_CHARS = 160


def review(conversation: Conversation) -> dict[str, Any]:
    """PASS, or REVISE with each step and its problem; what another round cannot mend is an
    open point.
    """
    asking = understand(request_in(conversation.task))
    revisions: dict[str, list[str]] = {}
    open_points: list[str] = []
    for result in conversation.results:
        problems, points = _check(result, conversation.results)
        open_points += points
        if problems:
            revisions[result.step] = problems
    missing = _uncovered(asking, conversation.results)
    if missing and conversation.results:
        revisions.setdefault(conversation.results[-1].step, []).extend(missing)
    named = [{"step": step, "problem": " ".join(problems)} for step, problems in revisions.items()]
    said = (
        gaps_in(conversation.results[-1].text) if conversation.results else []
    )  # the answer itself names these: once is enough
    points = [
        point
        for point in dict.fromkeys(open_points)
        if point.removeprefix(f"{NOT_FOUND}: ") not in said
    ]
    verdict = {"verdict": "REVISE" if named else "PASS", "revisions": named, "open_points": points}
    has_scores = property_schema(conversation.schema or {}, "scores")
    return {**({"scores": []} if has_scores else {}), **verdict}  # a score takes a judge


def _check(result: Result, results: tuple[Result, ...]) -> tuple[list[str], list[str]]:
    points = [f"{NOT_FOUND}: {gap}" for gap in gaps_in(result.text)]
    if result.status == "failed":
        return ["The step failed: do it again, or say what stands in its way."], points
    if result.status == "needs_input":
        return [], [*points, f"{result.step} needs input that it does not have."]
    if result.output is None or (isinstance(result.output, str) and not result.output.strip()):
        return ["The output is empty."], points
    problems = []
    if isinstance(result.output, str):
        unmarked = list(unmarked_statements(result.output))
        problems += [
            f'Cite or drop this statement: "{each[:_QUOTED_CHARS]}"'
            for each in unmarked[:_MOST_QUOTED]
        ]
    known = {claim.id for other in results for claim in other.claims}
    known |= {claim.id.split(".", 1)[1] for claim in result.claims}
    unknown = sorted(markers_in(result.text) - known) if known else []
    problems += [f"These markers point to no claim: {', '.join(unknown)}."] if unknown else []
    return problems, points


def _uncovered(asking: Asking, results: tuple[Result, ...]) -> list[str]:
    """Parts of the request that no result speaks of, not even to say that nothing was found."""
    said = "\n".join(result.text for result in results if result.status != "failed")
    missing = [
        f"The request asks about {thing}: no result speaks of it."
        for thing in asking.things
        if not mentions(thing, said)
    ]
    if asking.things:
        missing += [
            f"The request asks for {label}: cover it, or say that the documents do not."
            for label in asking.aspects
            if not aspect(label).score(said) and label.lower() not in said.lower()
        ]
    return missing
