"""Forks of ended jobs, and the promises about forks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

WRONG_FORKS = "forks that were made twice, or changed their job"
"""Name of the promise in the report."""


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """A fork whose command was typed until it succeeded."""

    fork: str
    """Name of the fork."""
    commands: int
    """Number of times that the command was typed."""
    killed: int
    """Number of these commands that were killed."""
    refusals: Sequence[int] = ()
    """Exit codes of commands that were refused for another reason than an unreachable Redis."""
    found: Sequence[str] = ()
    """Ids of the jobs in the store that are forks of the same job."""
    before: Sequence[str] = ()
    """Events of the forked job before the first command, as JSON."""
    after: Sequence[str] = ()
    """Its events at the end of the run."""
    results: Mapping[str, str] | None = None
    """Digests of the results of the forked job: step -> digest."""
    kept: Mapping[str, str] | None = None
    """Digests of the results that the fork has kept."""

    def breaches(self) -> Iterator[str]:
        """Yield one line for each fault."""
        for code in self.refusals:
            yield f"{self.fork}: the command ended with {code}"
        if len(self.found) != 1:
            yield f"{self.fork}: {len(self.found)} forks ({', '.join(self.found)})"
        if list(self.before) != list(self.after):
            yield f"{self.fork}: its job had {len(self.before)} events, and has {len(self.after)}"
        if self.results != self.kept:
            yield f"{self.fork}: kept {self.kept}, and its job has {self.results}"


@dataclass(frozen=True, slots=True)
class ForkRecords:
    """All forks of a run."""

    forks: Sequence[ForkRecord]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for fork in self.forks:
            lines += fork.breaches()
        return {WRONG_FORKS: lines}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {
            "forks": len(self.forks),
            "commands of forks": sum(fork.commands for fork in self.forks),
            "killed": sum(fork.killed for fork in self.forks),
        }
