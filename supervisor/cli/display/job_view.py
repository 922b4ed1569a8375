"""The state of a job that the live display shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.types.errors import StoreUnavailable, UnknownJob
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, Recorded
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.journal_follower import (
    RECONNECT_EVERY_S,
    RECONNECT_FOR_S,
    ReconnectLimit,
)
from handoff_queue.supervisor.client.waiting_reasons import LOOK_EVERY_S, MissingRole, missing_for
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, sources_of_words
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.copy_names import source_of

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client


MOST_ROWS = 40
"""Most rows of a tree. A tree that is higher than the screen cannot be redrawn in place."""

_One = TypeVar("_One")


@dataclass(frozen=True)
class StepCopies(Generic[_One]):
    """The copies of one step, in order."""

    first: str
    last: str
    all: tuple[_One, ...]

    @property
    def name(self) -> str:
        return f"{self.first} to {self.last}"


def collapse_steps(
    things: Sequence[_One], name_of: Callable[[_One], str]
) -> Iterator[_One | StepCopies[_One]]:
    """Return the things. If they do not fit on a screen, the copies of one step become one entry."""
    if len(things) <= MOST_ROWS:
        yield from things
        return
    alike: dict[str, list[_One]] = {}
    for thing in things:
        name = name_of(thing)
        alike.setdefault(source_of(name) or name, []).append(thing)
    for some in alike.values():
        if len(some) > 1 and source_of(name_of(some[0])):
            found = sorted(map(name_of, some), key=lambda name: (len(name), name))
            yield StepCopies(found[0], found[-1], tuple(some))
        else:
            yield from some


def names(all_of_them: Sequence[str]) -> str:
    """Return names as a short text: `a, page_0001 to page_2000`."""
    return ", ".join(
        one if isinstance(one, str) else one.name for one in collapse_steps(all_of_them, str)
    )


def outcomes(states: Sequence[str]) -> str:
    """Return the count of each state: `1,999 ok, 1 failed`."""
    return ", ".join(f"{count:,} {state}" for state, count in Counter(states).most_common())


TICK_S = 0.2
"""Seconds between two reads of the running handoffs. Events arrive at once."""
_SETTLED = frozenset({"done", "dropped"})


@dataclass(frozen=True)
class JobView:
    """View of a job at one moment. Times are Unix seconds of Redis's clock."""

    job_id: JobId
    now: float = 0.0
    state: JobState | None = None
    books: JobStanding | None = None
    issued: tuple[HandoffIssued, ...] = ()
    finished: Mapping[HandoffId, HandoffFinished] = field(default_factory=dict)
    standings: Mapping[HandoffId, HandoffStanding] = field(default_factory=dict)
    missing: tuple[MissingRole, ...] = ()
    """Missing workers."""
    words: ResultTexts = field(default_factory=ResultTexts)
    """The texts that the events refer to."""
    children: Mapping[JobId, JobView] = field(default_factory=dict)
    """The child jobs."""

    @property
    def version(self) -> int:
        if self.state:
            return self.state.version
        return 0

    @property
    def ended(self) -> bool:
        return self.state is not None and self.state.ended is not None

    @property
    def teams(self) -> Mapping[JobId, HandoffIssued]:
        """Return the child jobs, each with its latest handoff."""
        teams: dict[JobId, HandoffIssued] = {}
        for event in self.issued:
            if event.child:
                teams[event.child.job_id] = event
        return teams

    def told(self, events: Sequence[Recorded]) -> JobView:
        """Return the view after these events."""
        issued: list[HandoffIssued] = []
        for event in events:
            if isinstance(event.event, HandoffIssued):
                issued.append(event.event)
        finished = {
            one.event.handoff_id: one.event
            for one in events
            if isinstance(one.event, HandoffFinished)
        }
        return replace(
            self,
            state=fold(self.job_id, self.state, events),
            issued=(*self.issued, *issued),
            finished={**self.finished, **finished},
        )

    def spent(self, done: HandoffFinished) -> tuple[int, int, bool]:
        """Return the turns and tokens of an ended handoff, and whether they are an upper bound.

        These are the figures of the budget. A result does not count calls that were cut off by a
        kill.
        """
        books = self.standings.get(done.handoff_id)
        if books is None or books.state != "done":
            return done.turns, done.usage.total_tokens, done.usage.cut_calls > 0
        return books.turns, books.input_tokens + books.output_tokens, books.cut_calls > 0


def heard(jobs: Client, view: JobView, events: Sequence[Recorded]) -> JobView:
    """Return the view after these events, with their texts. Without texts there is no round trip."""
    said = (ref.digest for one in events for ref in sources_of_words(one.event))
    new: list[str] = []
    for digest in dict.fromkeys(said):
        if digest not in view.words.texts:
            new.append(digest)
    if new:
        words = ResultTexts(
            {**view.words.texts, **jobs.store.payloads.get(view.job_id, [], results=new)}
        )
    else:
        words = view.words
    return replace(view.told(events), words=words)


def look(jobs: Client, view: JobView) -> JobView:
    """Return the view with fresh states of the running handoffs. `books` is None if the job is
    gone.
    """
    settled: set[HandoffId] = set()
    for handoff_id, standing in view.standings.items():
        if standing.state in _SETTLED:
            settled.add(handoff_id)
    wanted: list[HandoffId] = []
    for event in view.issued:
        if event.handoff_id not in settled:
            wanted.append(event.handoff_id)
    standings = jobs.store.jobs.handoffs(view.job_id, wanted)
    books = next(iter(jobs.store.jobs.standings([view.job_id])), None)
    return replace(
        view,
        now=jobs.store.connection.now(),
        books=books,
        standings={**view.standings, **standings},
    )


@dataclass(frozen=True)
class JobUpdate:
    """New events of a job, and the view after these events."""

    view: JobView
    events: tuple[Recorded, ...] = ()
    trouble: str | None = None
    """Error text while Redis is away. There are no new events then."""
    below: tuple[JobUpdate, ...] = ()
    """The updates of the child jobs."""


News = Mapping[JobId, Sequence[Recorded]]
"""New events, by job."""


def moment_of(view: JobView, news: News) -> JobUpdate:
    """Return the update of a job and of the child jobs in its view."""
    return JobUpdate(
        view,
        tuple(news.get(view.job_id, ())),
        below=tuple(moment_of(child, news) for child in view.children.values()),
    )


def look_below(jobs: Client, view: JobView) -> tuple[JobView, News]:
    """Return the view with fresh child jobs, in two round trips for each running child job.

    A deleted child job keeps its last view.
    """
    children, news = dict(view.children), dict[JobId, Sequence[Recorded]]()
    for job_id, event in view.teams.items():
        if (
            child := children.get(job_id, JobView(job_id))
        ).ended and event.handoff_id in view.finished:
            continue
        events = jobs.store.journal.read(child.job_id, child.version)
        if child.version or events:
            seen = look(jobs, heard(jobs, child, events))
            children[child.job_id], below = look_below(
                jobs, replace(seen, books=seen.books or child.books)
            )
            news |= {child.job_id: events, **below}
    return replace(view, children=children), news


def with_missing(jobs: Client, view: JobView) -> JobView:
    """Return the view with the missing roles of the job and of its child jobs."""
    if view.books is None:
        return view
    out: list[HandoffId] = []
    for event in view.issued:
        if event.handoff_id not in view.finished:
            out.append(event.handoff_id)
    children = {job_id: with_missing(jobs, child) for job_id, child in view.children.items()}
    return replace(view, missing=missing_for(jobs.store, view.books, out), children=children)


def follow(
    jobs: Client,
    job_id: JobId,
    *,
    check: Callable[[], None] = lambda: None,
    reconnect_for_s: float = RECONNECT_FOR_S,
) -> Iterator[JobUpdate]:
    """Yield the updates of a job from its start to its end.

    Args:
        check: called at each update. An exception ends the iteration.
        reconnect_for_s: seconds for which Redis may be away.

    Raises:
        UnknownJob: the job does not exist, or was deleted.
        StoreUnavailable: Redis stays away for longer.
    """
    jobs.standing(job_id)
    view, patience, asked_at = JobView(job_id), ReconnectLimit(reconnect_for_s), float("-inf")
    while not view.ended:
        check()
        try:
            events = jobs.store.journal.follow(job_id, view.version, TICK_S)
            seen, news = look_below(jobs, look(jobs, heard(jobs, view, events)))
            if seen.books is None:
                raise UnknownJob.named(job_id)
            if time.monotonic() - asked_at >= LOOK_EVERY_S or seen.ended:
                seen, asked_at = with_missing(jobs, seen), time.monotonic()
            view = seen  # set after all reads, so that a lost connection loses no events
        except StoreUnavailable as error:
            patience.bear(error)
            yield JobUpdate(view, trouble=str(error))
            time.sleep(RECONNECT_EVERY_S)
            continue
        patience.renew()
        yield moment_of(view, {**news, job_id: events})
