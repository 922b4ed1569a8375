"""Jobs, dead letters and tokens in the state that a command of the documents needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import read_items, read_workflow
from tests.waiting import wait_until

LETTERS = """\
description: A letter for each row, with a person's approval.
review: false
steps:
  - id: send
    specialist: writer
    for_each: rows
    approve: true
    task: Write a letter to {name}.
"""
READING = """\
description: One step, with a person's approval.
review: false
steps:
  - id: read
    specialist: writer
    approve: true
    task: Read it.
"""
WRITING = """\
description: One step.
review: false
steps:
  - id: write
    specialist: writer
    task: Write it.
"""
ADDRESSEES = "Order no.,name\nA-1042,Ann Lee\nA-1043,Bob Ray\nA-1044,Eve Orr\n"


@dataclass
class PreparedJobs:
    """Jobs on a running system. The folder holds the files of the documents."""

    jobs: Client
    folder: Path

    def fitting(self, words: Sequence[str]) -> JobId:
        """Return a job in the state that a command needs."""
        match words[1]:
            case "approve" | "reject" if "--step" in words:
                self._wait_for_question(self.with_steps_to_approve)
                return self.with_steps_to_approve
            case "approve" | "reject" | "cancel":
                return self.waiting()
            case "retry" | "delete":
                return self.cancelled()
            case "say":
                return self.with_a_step_to_begin
            case "fork" | "golden":
                return self.written
            case _:
                return self.ended

    @cached_property
    def ended(self) -> JobId:
        """A job that has ended, with rows."""
        request = Request(
            "Be kind.",
            documents=self.folder / "terms",
            workflow=read_workflow(str(self.folder / "complaints.yaml")),
            items=read_items(self.folder / "complaints.csv"),
        )
        job_id = self.jobs.submit(request)
        self.jobs.wait(job_id, 60)
        return job_id

    @cached_property
    def written(self) -> JobId:
        """A job with the step `write` that has ended."""
        workflow = self.folder / "writing.yaml"
        workflow.write_text(WRITING)
        job_id = self.jobs.submit(Request("Write.", workflow=read_workflow(str(workflow))))
        self.jobs.wait(job_id, 60)
        return job_id

    def run(self, question: str) -> None:
        """Run a job to its end. The output of a sample lists it."""
        folder = self.folder / "examples" / "vector-databases"
        job_id = self.jobs.submit(Request(question, documents=folder, mode=Mode.SINGLE))
        self.jobs.wait(job_id, 60)

    @cached_property
    def with_steps_to_approve(self) -> JobId:
        """A job that asks a person about three copies of the step `send`."""
        workflow, items = self.folder / "letters.yaml", self.folder / "letters.csv"
        workflow.write_text(LETTERS)
        items.write_text(ADDRESSEES)
        request = Request("To all.", workflow=read_workflow(str(workflow)), items=read_items(items))
        return self.jobs.submit(request)

    @cached_property
    def with_a_step_to_begin(self) -> JobId:
        """A job whose step `read` waits for an approval."""
        workflow = self.folder / "reading.yaml"
        workflow.write_text(READING)
        job_id = self.jobs.submit(Request("Read it.", workflow=read_workflow(str(workflow))))
        self._wait_for_question(job_id)
        return job_id

    def waiting(self) -> JobId:
        """Return a new job that asks a person about its answer."""
        request = Request(
            "When does the contract end?",
            documents=self.folder / "contracts",
            mode=Mode.SINGLE,
            approvals=Approvals(what=(ApprovalOf.ANSWER,)),
        )
        job_id = self.jobs.submit(request)
        self._wait_for_question(job_id)
        return job_id

    def cancelled(self) -> JobId:
        job_id = self.waiting()
        self.jobs.cancel(job_id)
        self.jobs.wait(job_id, 60)
        return job_id

    def dead_letter(self) -> str:
        """Return the id of a dead letter. If there is none, add the message of a waiting job."""
        letters = self.jobs.store.dead_letters
        if not letters.list_newest():
            letters.add(SUPERVISOR_QUEUE, "it is a message of this test", self.waiting())
        return letters.list_newest()[0].id

    def api_token(self) -> str:
        """Return the id of a token of the HTTP API."""
        return self.jobs.store.api_tokens.create("docs", AccessLevel.READ, None)[0].id

    def _wait_for_question(self, job_id: JobId) -> None:
        wait_until(lambda: self.jobs.info(job_id).approval, expected="the job's question")
