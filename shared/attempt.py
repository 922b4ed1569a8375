"""One attempt at a handoff, from its message to its result in the ledger: for workers and for the supervisor's own roles.

Load what it refers to, claim it, run the agent loop, finish. However that ends, it ends in one of the ways of `Ending`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from shared.agent.anthropic_clients import model_from
from shared.agent.equipment import Equipment
from shared.agent.loop import run
from shared.agent.model import Model
from shared.agent.price import prices_from
from shared.agent.prompt import ENVELOPE_RULES, Loaded, opening_of
from shared.agent.reading import Reading
from shared.agent.tool import Tool
from shared.config import OFFLINE_MODEL, Settings
from shared.ledger.claims import MAX_CLAIMS, Claim, ClaimVerdict
from shared.ledger.leases import Leases
from shared.ledger.ledger import Ledger
from shared.library import JobLibrary, Library
from shared.wire.errors import Cancelled, Draining, LeaseLost, LedgerError
from shared.wire.events import Event, HandoffFinished
from shared.wire.handoff import AgentHandoff, BlobRef, HandoffResult, ResultStatus, StopReason, failed
from shared.wire.message import digest_of
from shared.wire.specialist import SpecialistSpec, Tier

ERROR_CHARS = 300
"""Of a failure, in the journal; the whole of it is in the result."""

log = structlog.get_logger()


class Ending(StrEnum):
    """How an attempt ended, for Celery."""

    FINISHED = "finished"
    """The result is in the journal."""
    NOT_OURS = "not_ours"
    """A duplicate, cancelled, or somebody else's: nothing was done, or nothing more may be."""
    HANDED_BACK = "handed_back"
    """The process shuts down: the message goes back to its queue."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of an attempt."""

    how: Ending
    why: str = ""
    result: HandoffResult | None = None
    parts_left: int = -1
    """Of the chord; -1: none."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """What a handoff is run with, apart from the model: differs between specialists and roles."""

    reading: Reading
    tools: tuple[Tool, ...] = ()
    answer_rules: str = ENVELOPE_RULES
    streams_draft: bool = False


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows in the journal from a result, in the same step as the result itself."""

    events: tuple[Event, ...] = ()
    payloads: tuple[str, ...] = ()


Fit = Callable[[AgentHandoff, SpecialistSpec, Loaded, JobLibrary], Fitting]
Conclude = Callable[[AgentHandoff, HandoffResult], Consequences]


def nothing_follows(_handoff: AgentHandoff, _result: HandoffResult) -> Consequences:
    return Consequences()


@dataclass(slots=True)
class Attempts:
    """Runs attempts in this process; shared by its threads."""

    ledger: Ledger
    settings: Settings
    worker: str
    """This process's name, as Celery calls it."""
    leases: Leases
    library: Library
    make_model: Callable[[Settings], Model] = model_from
    _models: dict[bool, Model] = field(default_factory=dict)

    def attempt(self, text: str, handoff: AgentHandoff, fit: Fit, conclude: Conclude = nothing_follows) -> Ended:
        """Claim the handoff whose message is `text`, and run it to its end.

        Raises:
            LedgerUnavailable: nothing is lost; the lease runs out, and the sweeper has it run again.
        """
        claim = self.ledger.claims.claim(handoff.job_id, handoff.handoff_id, digest_of(text), self.worker)
        if claim.verdict not in (ClaimVerdict.GRANTED, ClaimVerdict.EXHAUSTED):
            return Ended(Ending.NOT_OURS, claim.verdict.value)
        with self.leases.held(claim):
            try:
                result = self._result(claim, handoff, fit)
                return self._finish(claim, handoff, result, conclude)
            except Draining as reason:
                claim.release()
                return Ended(Ending.HANDED_BACK, str(reason))
            except (LeaseLost, Cancelled) as reason:
                return Ended(Ending.NOT_OURS, str(reason))

    def _result(self, claim: Claim, handoff: AgentHandoff, fit: Fit) -> HandoffResult:
        if claim.verdict is ClaimVerdict.EXHAUSTED:
            why = f"its worker died or froze {MAX_CLAIMS} times while running it"
            return failed(handoff, why, StopReason.TOO_MANY_CLAIMS)
        name = handoff.model or ""
        if self.settings.is_offline and name not in ("", OFFLINE_MODEL):
            return failed(handoff, f"{name} was asked for, and worker {self.worker} has no key for it: set ANTHROPIC_API_KEY there")
        try:
            spec, loaded = self._load(handoff)
        except LedgerError as error:
            return failed(handoff, f"what the handoff refers to is not in the ledger: {error}")
        books = self.library.of_job(handoff.job_id, handoff.handoff_id, loaded.manifest, handoff.limits.deadline)
        fitting = fit(handoff, spec, loaded, books)
        opening = opening_of(handoff, spec, loaded, answer_rules=fitting.answer_rules)
        equipment = Equipment(
            model=self._model(name),
            model_name=self._model_name(handoff, spec),
            turns=claim,
            reading=fitting.reading,
            prices=prices_from(self.settings),
            tools=fitting.tools,
            tool_context=books.tool_context,
            now=self.ledger.connection.now,
            silence_s=self.settings.model_silence_s,
            streams_draft=fitting.streams_draft,
        )
        return run(handoff, spec, opening, equipment)

    def _load(self, handoff: AgentHandoff) -> tuple[SpecialistSpec, Loaded]:
        """Everything that the handoff refers to, in at most one round trip."""
        refs = [item.result.digest for item in handoff.context]
        previous = [item.previous.digest for item in handoff.feedback if item.previous]
        manifest = next((item.manifest.digest for item in handoff.artifacts if item.kind == "documents"), None)
        texts = self.library.payloads(handoff.job_id, [handoff.specialist, *refs, *previous, *([manifest] if manifest else [])])
        spec = SpecialistSpec.from_json(texts[handoff.specialist])
        return spec, Loaded(
            results={item.step_id: HandoffResult.from_json(texts[item.result.digest]) for item in handoff.context},
            previous={digest: HandoffResult.from_json(texts[digest]) for digest in previous},
            manifest=self.library.manifest(texts[manifest]) if manifest else Loaded().manifest,
        )

    def _finish(self, claim: Claim, handoff: AgentHandoff, result: HandoffResult, conclude: Conclude) -> Ended:
        followed = conclude(handoff, result)
        finished = finished_event(result, self.worker)
        left = claim.finish(result, (finished, *followed.events), followed.payloads)
        if left is None:
            return Ended(Ending.NOT_OURS, "finished too late")
        log.info("handoff finished", status=result.status.value, turns=result.turns, stop_reason=result.stop_reason.value)
        return Ended(Ending.FINISHED, result.status.value, result, left)

    def _model(self, name: str) -> Model:
        """One client a process for each of: the provider's, the offline one."""
        offline = self.settings.is_offline or name == OFFLINE_MODEL
        if offline not in self._models:
            self._models[offline] = self.make_model(self.settings.model_copy(update={"offline": True}) if offline else self.settings)
        return self._models[offline]

    def _model_name(self, handoff: AgentHandoff, spec: SpecialistSpec) -> str:
        if self.settings.is_offline:
            return OFFLINE_MODEL
        default = self.settings.supervisor_model if spec.tier is Tier.CAPABLE else self.settings.specialist_model
        return handoff.model or spec.model or default


def finished_event(result: HandoffResult, worker: str) -> HandoffFinished:
    """What the journal keeps of a result."""
    text = result.to_json()
    return HandoffFinished(
        handoff_id=result.handoff_id,
        status=result.status,
        result=BlobRef(digest=digest_of(text), size=len(text)),
        usage=result.usage,
        turns=result.turns,
        stop_reason=result.stop_reason,
        confidence=result.confidence,
        claims=len(result.claims),
        needs=_line(result.needs),
        error=_line(result.error) if result.status is not ResultStatus.OK else None,
        model=result.model,
        worker=worker,
    )


def _line(text: str | None) -> str | None:
    return " ".join(text.split())[:ERROR_CHARS] if text else None


def urgent(results: Sequence[HandoffResult]) -> bool:
    """Whether the supervisor should hear of these at once, without waiting for their siblings."""
    return any(result.status in (ResultStatus.FAILED, ResultStatus.NEEDS_INPUT) for result in results)
