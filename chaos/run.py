"""What a run does: jobs go in while the killer is at work, or while every failpoint is tried; then the books are closed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from chaos import holes
from chaos.books import Books
from chaos.fleet import Size
from chaos.killer import Killer, order_of
from chaos.plan import jobs_of
from chaos.stage import LOOK_EVERY_S, Stage, Tell, stage
from chaos.trial import Trial
from chaos.windows import cases

PLAIN, OURS = "plain Celery", "handoff"
ALONE = 5
"""Jobs that are struck once each, when the hunt is over."""
LONG_CALL_S = 0.5
AT_ONCE = 12
"""Jobs that are open, at most."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be run."""

    seed: int
    jobs: int = 50
    kills: int = 20
    size: Size = field(default_factory=Size)


def run(options: Options, tell: Tell) -> Books:
    """N jobs under a killer that strikes until it has killed as often as it was asked to."""
    with stage(options.size) as on:
        tell(f"{options.size.supervisors} supervisors and {options.size.workers} workers are up")
        killer = Killer(on.fleet, order_of(options.seed))
        _hunt(on, killer, options, tell)
        killer.rest()
        tell(f"{killer.kills} kills, {len(killer.strikes) - killer.kills} other faults; {len(on.open)} jobs are still open")
        on.settle()
        not_struck = _strike_alone(on, killer, options) if options.kills else []
        return on.close(killer.strikes, not_happened=[*killer.not_happened, *not_struck])


def _strike_alone(on: Stage, killer: Killer, options: Options) -> list[str]:
    """Recovery can be measured only where nothing else happens: kill who has a long call in the air, and wait until its job has ended.

    Returns the strikes that could not be made.
    """
    not_struck = []
    if on.open:
        return [f"{ALONE} strikes alone: jobs were still open"]
    for job in jobs_of(options.seed, ALONE, first=options.jobs):
        while not on.submit(job):
            time.sleep(LOOK_EVERY_S)
        is_struck = False
        while on.open and not is_struck:
            last = on.model.calls[-1]
            is_long = last.key.job == job.name and job.takes_s(last.key) >= LONG_CALL_S and time.time() - last.at < LONG_CALL_S / 2
            is_struck = is_long and killer.kill(last.process)
            on.look()
            time.sleep(LOOK_EVERY_S)
        if not is_struck:
            not_struck.append(f"a strike alone on {job.name}: no long call of it was in the air")
        on.settle()
    return not_struck


def _hunt(on: Stage, killer: Killer, options: Options, tell: Tell) -> None:
    """Jobs come in as long as the killer is at work, so that there is always something to hit."""
    waiting = jobs_of(options.seed, options.jobs)
    told_at = time.monotonic()
    while waiting or killer.kills < options.kills:
        done = options.jobs - len(waiting)
        is_due = killer.kills >= options.kills or done < AT_ONCE // 2 or done * options.kills <= killer.kills * options.jobs
        if waiting and is_due and len(on.open) < AT_ONCE and on.submit(waiting[0]):
            waiting.pop(0)
        if killer.kills < options.kills:
            killer.go_on()
        on.look()
        if time.monotonic() - told_at > 10:
            told_at = time.monotonic()
            tell(f"{killer.kills} of {options.kills} kills, {done - len(on.open)} of {options.jobs} jobs have ended")
        time.sleep(LOOK_EVERY_S)


def try_failpoints(options: Options, tell: Tell) -> Books:
    """Every failpoint, each on every kind of process that passes it, with jobs on the fleet all the while."""
    with stage(options.size) as on:
        trial = Trial(on, options.seed, tell)
        trial.run(cases())
        tell(f"{len(trial.strikes)} faults; {len(on.open)} jobs are still open")
        on.settle()
        return on.close(trial.strikes, [str(case) for case in trial.not_reached])


def try_holes(tell: Tell) -> dict[str, dict[holes.Hole, holes.Outcome]]:
    """The five holes of chords: in plain Celery, and here."""
    found = {}
    for name, system in ((PLAIN, holes.plain), (OURS, holes.ours)):
        tell(f"{name}:")
        with system() as running:
            found[name] = holes.try_holes(running, tell)
    return found
