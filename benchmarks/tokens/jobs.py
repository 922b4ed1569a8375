"""Ten jobs with documents and fixed answers: five questions about one document, and five about
three documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_FILE = Path(__file__).with_name("jobs.json")
_BACKGROUND = """\
This note was written for colleagues who did not take part in the work. It keeps the order of the meetings in which the
points were raised, and it repeats a few points that other notes also mention. Where a figure was corrected later, the
corrected figure stands here and the earlier one was removed.

The figures come from the people in charge of each subject. They were read back to them once, and a second person
compared them with the records. Small differences between this note and older notes are the result of that comparison.
Nobody has changed the wording of the agreed sentences since then, because other documents quote them.

Questions about the history of the subject belong to the register of decisions. It names the date of each decision, the
people who took it, and the options that were turned down. The register also says which of the decisions will be looked
at again, and when. Requests for a change go to the office, which answers within ten working days.
"""  # noqa: E501 - lines of a text
"""Text around the facts, so that a document has the length of a page."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement of the answer, and the sentence of the document that proves it."""

    statement: str
    quote: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job: one document, and the section of the answer about it."""

    name: str
    title: str
    facts: tuple[Fact, ...]

    @property
    def path(self) -> str:
        return f"{self.name}.md"

    @property
    def task(self) -> str:
        """The task of the specialist that does this part."""
        return (
            f"Report the facts that the request needs about {self.subject}: three bullet points,"
            " each with its source. Other steps report on the other documents."
        )

    @property
    def subject(self) -> str:
        """The words of the task that differ from those of other parts."""
        return f"{self.title}, from the document {self.path}"

    @property
    def document(self) -> str:
        """The text of the document: about 400 tokens."""
        opening, *rest = _BACKGROUND.split("\n\n")
        blocks = [f"# {self.title}", opening]
        for fact, background in zip(self.facts, [*rest, ""], strict=True):
            blocks.append(fact.quote)
            blocks.append(background)
        return "\n\n".join(filter(None, blocks))

    def format_section(self, mark: str) -> str:
        """Return the section of the answer about this part.

        Args:
            mark: the mark of a source, with `{number}` for the number of the fact.
        """
        lines = [f"## {self.title}", ""]
        for number, fact in enumerate(self.facts, start=1):
            lines.append(f"- {fact.statement} {mark.format(number=number)}".rstrip())
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Job:
    """A request and its parts."""

    request: str
    parts: tuple[Part, ...]

    @property
    def documents(self) -> dict[str, bytes]:
        """The documents by path."""
        return {part.path: part.document.encode() for part in self.parts}

    @property
    def paths(self) -> list[str]:
        return [part.path for part in self.parts]

    def find_missing(self, answer: str) -> list[str]:
        """Return the statements and the quotes that an answer does not contain."""
        missing: list[str] = []
        for part in self.parts:
            for fact in part.facts:
                for text in (fact.statement, fact.quote):
                    if text not in answer:
                        missing.append(text)
        return missing


@lru_cache(maxsize=1)
def list_jobs() -> tuple[Job, ...]:
    jobs: list[Job] = []
    for value in json.loads(_FILE.read_text(encoding="utf-8")):
        jobs.append(Job(value["request"], tuple(_read_parts(value["parts"]))))
    return tuple(jobs)


def format_answer(parts: Iterable[Part]) -> str:
    """Return an answer with footnotes: each fact, its document and its quote."""
    sections: list[str] = []
    notes: list[str] = []
    for part in parts:
        first = len(notes)
        lines = [f"## {part.title}", ""]
        for number, fact in enumerate(part.facts, start=first + 1):
            lines.append(f"- {fact.statement} [{number}]")
            notes.append(f'[{number}] {part.path}: "{fact.quote}"')
        sections.append("\n".join(lines))
    return "\n\n".join([*sections, "Sources:\n" + "\n".join(notes)])


def find_job(text: str) -> Job:
    """Return the job whose request or part is in a text.

    Raises:
        LookupError: there is none.
    """
    for job in list_jobs():
        if job.request in text or any(part.task in text for part in job.parts):
            return job
    raise LookupError(f"no job in a request: {text[:300]}")


def find_parts(text: str) -> Sequence[Part]:
    """Return the part whose task is in a text, or all parts of the job whose request is in it."""
    job = find_job(text)
    named_parts = []
    for part in job.parts:
        if part.task in text:
            named_parts.append(part)
    if len(named_parts) == 1:
        return named_parts
    return job.parts


def _read_parts(values: Iterable[dict[str, object]]) -> Iterable[Part]:
    for value in values:
        facts: list[Fact] = []
        pairs = value["facts"]
        assert isinstance(pairs, list)
        for statement, quote in pairs:
            facts.append(Fact(statement, quote))
        yield Part(str(value["name"]), str(value["title"]), tuple(facts))
