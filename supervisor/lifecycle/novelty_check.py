"""The novelty check: whether an added step found anything that the job did not have. Pure.

A claim is known if an earlier result of the same specialist has the same subject, attribute and
value, and cites the same places. A claim without these parts is compared by its text. A known fact
from another source is new.

A result without claims is known by its text: earlier results contain each of its sentences, and
almost all of its runs of words (A. Broder's shingles). A report may differ from the previous report
in one figure only, and that figure was its purpose.

A step that restates a result in another form (shorter, as a table, in another language) has
fulfilled its task. There only the same text is nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.handoff import BlobRef, Citation, Claim, HandoffResult
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus
from handoff_queue.supervisor.text.result_fingerprint import EarlierClaims, ResultFingerprint

KNOWN_FROM = 0.9
"""Part of a text's shingles from which it has nothing new."""
LEAST_SHINGLES = 12
"""A text with fewer ("Yes.", "None was found.") answers one question as well as another, and
is no sign of anything.
"""
WORDS_KNOWN_FROM = 0.6
"""Part of the words around known claims that must be known, too. Below it the text draws other
conclusions.
"""


def results_for_novelty_check(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results that `nothing_new_in` reads; empty if no added step has a result."""
    if _to_be_judged(state):
        results: list[BlobRef] = []
        for step in state.steps.values():
            if step.usable and step.result:
                results.append(step.result)
        return tuple(results)
    return ()


def nothing_new_in(state: JobState, words: ResultTexts) -> tuple[StepId, ...]:
    """Return the added steps, among the steps that the replanner saw, whose results have nothing
    new.

    Args:
        words: texts of `results_for_novelty_check`.
    """
    round_of = _rounds(state)
    if not (judged := _to_be_judged(state)):
        return ()
    fingerprints = {
        step_id: ResultFingerprint(words.result(step.result))
        for step_id, step in state.steps.items()
        if step.usable and step.result
    }
    repeating = []
    for step_id in judged:
        of = state.steps[step_id].specialist
        before = [
            earlier
            for earlier in fingerprints
            if state.steps[earlier].specialist == of
            and round_of.get(earlier, 0) < round_of[step_id]
        ]
        built_upon = _upstream(state, step_id)
        apart = [fingerprints[earlier] for earlier in before if earlier not in built_upon]
        if _is_known(fingerprints[step_id], apart) or any(
            _is_said_again(fingerprints[step_id], fingerprints[earlier])
            for earlier in before
            if earlier in built_upon
        ):
            repeating.append(step_id)
    return tuple(repeating)


def is_known(result: HandoffResult, earlier: Sequence[HandoffResult]) -> bool:
    """Return whether earlier results contain everything in a result."""
    return _is_known(ResultFingerprint(result), [*map(ResultFingerprint, earlier)])


def repeats_text(result: HandoffResult, earlier: HandoffResult) -> bool:
    """Return whether each result has all sentences of the other."""
    return _is_said_again(ResultFingerprint(result), ResultFingerprint(earlier))


def _is_known(new: ResultFingerprint, earlier: Sequence[ResultFingerprint]) -> bool:
    if not new.claims:
        share = _share(
            new.shingles, frozenset[tuple[str, ...]]().union(*(one.shingles for one in earlier))
        )
        return share >= KNOWN_FROM and all(
            any(one in other.sentences for other in earlier) for one in new.sentences
        )
    before = EarlierClaims(claim for other in earlier for claim in other.claims)
    if not all(_is_known_claim(claim, before) for claim in new.claims):
        return False
    stems = {one for other in earlier for one in other.stems}
    is_about_the_same = len(new.stems & stems) >= WORDS_KNOWN_FROM * len(new.stems)
    return is_about_the_same and all(
        any(one in other.marks for other in earlier) for one in new.marks
    )


def _is_said_again(new: ResultFingerprint, earlier: ResultFingerprint) -> bool:
    is_whole = (
        min(_share(new.shingles, earlier.shingles), _share(earlier.shingles, new.shingles))
        >= KNOWN_FROM
    )
    return is_whole and new.sentences == earlier.sentences and new.values <= earlier.values


def _to_be_judged(state: JobState) -> tuple[StepId, ...]:
    added, shown = _rounds(state), {*state.patches.shown}
    items: list[StepId] = []
    for step_id, step in state.steps.items():
        if (
            step_id in added
            and step.handoff_id in shown
            and step.status is StepStatus.SETTLED
            and step.usable
        ):
            items.append(step_id)
    return tuple(items)


def _rounds(state: JobState) -> dict[StepId, int]:
    """Return the number of the patch that added each step, from 1. Steps of the plan itself are
    left out.
    """
    rounds: dict[StepId, int] = {}
    for number, patch in enumerate(state.patches.made, start=1):
        for step in patch.added:
            rounds[step.id] = number
    return rounds


def _upstream(state: JobState, step_id: StepId) -> set[StepId]:
    upstream, frontier = set[StepId](), [step_id]
    while frontier:
        for before in state.steps[frontier.pop()].outline.depends_on:
            if before not in upstream and before in state.steps:
                upstream.add(before)
                frontier.append(before)
    return upstream


def _is_known_claim(claim: Claim, before: EarlierClaims) -> bool:
    alike = before.like(claim)
    return bool(alike) and all(
        any(_is_cited(source, other) for other in alike) for source in claim.sources
    )


def _is_cited(source: Citation, claim: Claim) -> bool:
    return any(
        place.digest == source.digest and place.start < source.end and source.start < place.end
        for place in claim.sources
    )


def _share(ours: frozenset[tuple[str, ...]], theirs: frozenset[tuple[str, ...]]) -> float:
    """Return the part of our runs of words that theirs contain; 0 for too few."""
    if len(ours) >= LEAST_SHINGLES:
        return len(ours & theirs) / len(ours)
    return 0.0
