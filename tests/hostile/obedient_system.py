"""A supervisor and a worker in this process, on a real Redis, whose model obeys every instruction
that it reads. So only code can stop an attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.encryption_at_rest import Sealing
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text
from handoff_queue.workers.handoff_task import run_handoff
from handoff_queue.workers.host_task_step import HostTasks
from handoff_queue.workers.tools.registry import Registry
from tests.doubles.handoffs import a_spec
from tests.doubles.served_model import model_at
from tests.supervisor.shell import SETTINGS, Shell

SPECIALISTS = ("coder", "generalist", "researcher", "writer")


@dataclass
class ObedientSystem:
    """A supervisor in this process. `work` also does the work of the specialists' workers."""

    shell: Shell
    server: MessagesServer
    registry: Registry = field(default_factory=lambda: Registry({}, {}))
    """The tools of the worker."""
    specs: dict[str, SpecialistSpec] = field(default_factory=dict)
    """The specialists by name."""
    worker: Attempts = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self.shell.attempts

    def run(self, job_id: JobId, turns: int = 30) -> None:
        """Run a job to its end.

        Raises:
            AssertionError: the job has not ended after these evaluations.
        """
        for _ in range(turns):
            self.shell.advance(job_id)
            if self.shell.jobs.info(job_id).status.has_ended:
                return
            for event in self.shell.open(job_id):
                self._work(job_id, event)
        raise AssertionError(self.shell.kinds(job_id))

    def offer(
        self,
        *tools: Tool,
        only: Mapping[str, Sequence[str]] | None = None,
        hosts: tuple[str, ...] | None = None,
    ) -> None:
        """Give these tools to every specialist.

        Args:
            only: names of the tools of a specialist that does not get all tools.
            hosts: the hosts that all specialists may reach; None: all.
        """
        self.registry = Registry({tool.name: tool for tool in tools}, {})
        for name in SPECIALISTS:
            spec = a_spec(*(only or {}).get(name, self.registry.tools), name=name)
            self.specs[name] = spec.model_copy(update={"hosts": hosts})
        self.shell.announce(*self.specs.values(), model="scripted")

    def seal_with(self, sealing: Sealing) -> None:
        """Encrypt the texts of tenants, as the settings of a process would."""
        self.shell.store.connection.sealing = sealing
        self.shell.dispatcher._sealing = sealing

    def use_settings(self, settings: Settings) -> None:
        """Give the worker these settings. The model stays."""
        attempts = self.shell.attempts
        self.worker = Attempts(
            attempts.store,
            settings,
            "worker:1",
            attempts.leases,
            attempts.payload_cache,
            attempts.models,
        )

    def tool_results(self) -> list[str]:
        """Return the texts of all tool results in the newest request of the model."""
        texts: list[str] = []
        for message in self.server.requests[-1]["messages"][1:]:
            for block in message["content"]:
                if block["type"] == "tool_result":
                    texts.append(block["content"])
        return texts

    def requests_with(self, text: str) -> list[Json]:
        """Return the model's requests whose opening message has this text."""
        return [request for request in self.server.requests if text in first_message_text(request)]

    def _work(self, job_id: JobId, event: HandoffIssued) -> None:
        text = self.shell.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
        handoff = AgentHandoff.from_json(text)
        run_handoff(
            self.worker,
            self.registry,
            lambda _job_id: None,
            self.specs[handoff.assigned_to],
            handoff,
            text,
            HostTasks(self.shell.app, SETTINGS),
        )


@contextmanager
def obedient_system(url: str, script: Callable[[Json], Reply]) -> Iterator[ObedientSystem]:
    """Yield a system on this Redis, whose model answers with this script."""
    queues = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)
    shell = Shell(url, make_app("test", url, SETTINGS, queues))
    with ExitStack() as stack:
        stack.callback(shell.close)
        server = stack.enter_context(MessagesServer(script))
        model = stack.enter_context(model_at(server.url))
        models = shell.attempts.models
        models.settings = SETTINGS
        models.make = lambda _settings: model
        system = ObedientSystem(shell, server)
        system.offer()
        yield system
