"""Short documents are in the opening message, unless the agent would lose a tool by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.prompt_documents import MAX_WHOLE_BYTES
from handoff_queue.shared.agent.tool import ANY_HOST, Tool
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.runner_factory import AgentSetup
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import AgentHandoff, Artifact, HandoffResult, make_ref
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import Origin
from handoff_queue.shared.types.specialist import SpecialistSpec
from tests.doubles.agent_runs import answer_reply
from tests.doubles.handoffs import a_handoff, a_manifest, a_spec, a_tool
from tests.doubles.jobs import a_job, issue_handoff
from tests.doubles.scripted_model import ScriptedModel, replies_in_order

SETTINGS = Settings(lease_s=3_600, offline=True)
READ = replace(a_tool("read_document", lambda _: "text"), reads_documents=True)
NOW = replace(a_tool("now", lambda _: "noon"), origins=())
CLOCK = a_tool("clock", lambda _: "noon")
FETCH = replace(a_tool("fetch", lambda _: "page"), sends=(ANY_HOST,), origins=("web",))
SHORT = "Qdrant is written in Rust."


class Attempt:
    """One attempt at a handoff with one document."""

    def __init__(self, store: Store, redis_url: str) -> None:
        self.store = store
        self.model = ScriptedModel(replies_in_order(answer_reply("Rust.", claims=[])))
        self.leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)

    def run(
        self, *tools: Tool, text: str | None = SHORT, origins: tuple[Origin, ...] = ("user",)
    ) -> HandoffResult:
        handoff = self._stored(text, [tool.name for tool in tools], origins)

        def make_setup(
            _handoff: AgentHandoff,
            _spec: SpecialistSpec,
            _loaded: LoadedPayloads,
            documents: JobDocuments,
        ) -> AgentSetup:
            form = {"type": "string"}
            return AgentSetup(EnvelopeFormat(handoff.step_id, form, documents.sources), tools)

        models = Models(SETTINGS, lambda _settings: self.model)
        attempts = Attempts(
            self.store, SETTINGS, "w1", self.leases, PayloadCache(self.store), models
        )
        ended = attempts.attempt(handoff.to_json(), handoff, make_setup)
        assert ended.result is not None
        return ended.result

    @property
    def opening(self) -> str:
        text: str = self.model.calls[0].messages[0]["content"][0]["text"]
        return text

    @property
    def offered(self) -> list[object]:
        return [tool["name"] for tool in self.model.calls[0].tools]

    def _stored(
        self, text: str | None, tools: list[str], origins: tuple[Origin, ...]
    ) -> AgentHandoff:
        """Return the handoff. Without a text, its job has no document."""
        payloads, artifacts = [a_spec(*tools).to_json()], []
        if text is not None:
            manifest, _ = a_manifest(qdrant=text)
            payloads.append(manifest.to_json())
            self.store.payloads.put_documents({compute_digest(text): text}, 600.0)
            listed = make_ref(manifest.to_json())
            artifacts.append(Artifact(kind="documents", name="documents", manifest=listed, count=1))
        handoff = a_handoff(
            job_id=a_job(self.store),
            specialist=compute_digest(payloads[0]),
            artifacts=tuple(artifacts),
            origins=origins,
        )
        issue_handoff(self.store, handoff, *payloads)
        return handoff


@pytest.fixture
def attempt(store: Store, redis_url: str) -> Iterator[Attempt]:
    made = Attempt(store, redis_url)
    yield made
    made.leases.stop()


def test_a_short_document_is_shown_and_needs_no_tool(attempt: Attempt) -> None:
    result = attempt.run(READ, CLOCK)
    assert f"\n{SHORT}</data>" in attempt.opening
    assert attempt.offered == ["clock"]
    assert result.origins == ("document", "user")


def test_a_long_document_is_listed_and_its_tool_stays(attempt: Attempt) -> None:
    attempt.run(READ, text="word " * MAX_WHOLE_BYTES)
    assert f"qdrant.md ({5 * MAX_WHOLE_BYTES:,} characters)" in attempt.opening
    assert attempt.offered == ["read_document"]


def test_an_agent_that_can_send_data_out_sees_no_document_before_it_asks(attempt: Attempt) -> None:
    result = attempt.run(READ, FETCH)
    assert SHORT not in attempt.opening
    assert attempt.offered == ["read_document", "fetch"]
    assert result.origins == ("user",)


def test_an_agent_that_has_lost_the_web_already_sees_the_document(attempt: Attempt) -> None:
    attempt.run(READ, FETCH, origins=("document", "user"))
    assert SHORT in attempt.opening


def test_an_agent_without_tools_for_documents_sees_only_their_names(attempt: Attempt) -> None:
    result = attempt.run(CLOCK)
    assert SHORT not in attempt.opening
    assert result.origins == ("user",)


@pytest.mark.parametrize(
    ("tools", "origins", "offered"),
    [
        ((READ, NOW), ("user",), ["now"]),
        ((READ, NOW), ("model", "user"), ["now"]),
        ((READ, FETCH), ("user",), ["read_document", "fetch"]),
        ((READ, NOW), ("user", "web"), ["read_document", "now"]),
        ((READ, NOW), ("tool look", "user"), ["read_document", "now"]),
    ],
)
def test_without_documents_an_agent_gets_no_tool_for_documents_that_nothing_can_bring(
    attempt: Attempt, tools: tuple[Tool, ...], origins: tuple[Origin, ...], offered: list[str]
) -> None:
    attempt.run(*tools, text=None, origins=origins)
    assert attempt.offered == offered
