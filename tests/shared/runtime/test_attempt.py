"""Every attempt ends its handoff with a result that names the reason, and never retries forever."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pydantic import JsonValue, SecretStr
from structlog.testing import capture_logs

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.broker.attempt_outcome import AttemptEnd, AttemptOutcome
from handoff_queue.shared.observability.logs import logged_as, merge_log_context
from handoff_queue.shared.runtime.attempt import Attempts, Consequences
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.runtime.payload_cache import JobDocuments, PayloadCache
from handoff_queue.shared.runtime.runner_factory import AgentSetup
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS
from handoff_queue.shared.store.leases import Leases
from handoff_queue.shared.store.payloads import pack
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.user_messages import StoredMessage
from handoff_queue.shared.types.checkpoints import ToolCallStarted
from handoff_queue.shared.types.errors import (
    InvalidTool,
    MissingCredentials,
    ModelBusy,
    ModelError,
    StoreUnavailable,
)
from handoff_queue.shared.types.events import UserMessageSent
from handoff_queue.shared.types.handoff import UNREADABLE as RESULT_UNREADABLE
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    Claim,
    ContextResult,
    Feedback,
    HandoffResult,
    ResultStatus,
    StopReason,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId, create_word
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.testing import Reply, tool_call_reply
from tests.doubles.agent_runs import answer_reply
from tests.doubles.handoffs import a_handoff, a_result, a_spec, a_tool, context_of
from tests.doubles.jobs import a_job, handoff_key, issue_handoff, turns_key
from tests.doubles.scripted_model import ScriptedModel, replies_in_order
from tests.thread_frames import threads_in
from tests.waiting import wait_until

SETTINGS = Settings(lease_s=3_600, offline=True)


def a_model(_settings: Settings) -> Model:
    return ScriptedModel(replies_in_order(answer_reply("Rust.", claims=[])))


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    """Set the log level of a process."""
    caplog.set_level(logging.INFO)


@pytest.fixture
def attempts(store: Store, redis_url: str) -> Iterator[Attempts]:
    leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)
    yield Attempts(store, SETTINGS, "w1", leases, PayloadCache(store), Models(SETTINGS, a_model))
    leases.stop()


def stored_handoff(
    store: Store,
    limits: HandoffLimits | None = None,
    spec: SpecialistSpec | None = None,
    context: tuple[ContextResult, ...] = (),
    **of_job: int,
) -> AgentHandoff:
    """Return a handoff that is stored with its specialist and its job."""
    job_id = a_job(store, **of_job)
    text = (spec or a_spec()).to_json()
    handoff = a_handoff(
        limits=limits,
        job_id=job_id,
        specialist=compute_digest(text),
        context=context,
    )
    issue_handoff(store, handoff, text)
    return handoff


def set_up_agent(
    handoff: AgentHandoff, _spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
) -> AgentSetup:
    return AgentSetup(
        EnvelopeFormat(
            handoff.step_id,
            handoff.expected_output_format,
            documents.sources,
            loaded.collect_claims(),
        )
    )


def result_of(ended: AttemptOutcome) -> HandoffResult:
    assert ended.end is AttemptEnd.FINISHED
    assert ended.result is not None
    return ended.result


def test_an_attempt_ends_with_the_models_answer(store: Store, attempts: Attempts) -> None:
    handoff = stored_handoff(store)

    assert result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).output == "Rust."


def test_a_tools_result_that_is_cited_is_stored_with_the_jobs_documents(
    store: Store, redis_url: str
) -> None:
    name, text = "tool:find.1/orders#1", "order B is shipped"
    claim = {"id": "c1", "text": "Shipped.", "sources": [{"source": name, "quote": text}]}
    script = replies_in_order(
        tool_call_reply(("orders", {"q": "B"})), answer_reply("Shipped [c1].", claims=[claim])
    )
    orders = replace(a_tool("orders", lambda _: text), is_source=True)
    leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)
    models = Models(SETTINGS, lambda _: ScriptedModel(script))
    attempts = Attempts(store, SETTINGS, "w1", leases, PayloadCache(store), models)
    handoff = stored_handoff(store, spec=a_spec("orders"))

    def with_tool(
        handoff: AgentHandoff, spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
    ) -> AgentSetup:
        return replace(set_up_agent(handoff, spec, loaded, documents), tools=(orders,))

    result = result_of(attempts.attempt(handoff.to_json(), handoff, with_tool))
    leases.stop()

    (document,) = store.payloads.load_fetched_pages(handoff.job_id)
    assert (document.path, result.claims[0].sources[0].source) == (name, name)
    assert store.payloads.get(handoff.job_id, [document.digest]) == {document.digest: text}


@pytest.mark.slow
def test_an_attempt_leaves_no_work_to_the_garbage_collector(
    store: Store, attempts: Attempts
) -> None:
    """A collection stops all threads, and until then the texts of the model's calls would stay in
    memory.
    """
    handoffs = [stored_handoff(store) for _ in range(2)]
    # builds the objects that later attempts share
    attempts.attempt(handoffs[0].to_json(), handoffs[0], set_up_agent)
    gc.collect()
    gc.disable()
    try:
        attempts.attempt(handoffs[1].to_json(), handoffs[1], set_up_agent)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {
            type(left_over).__qualname__
            for left_over in gc.garbage
            if type(left_over).__module__.startswith("shared.")
        }
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert left == set()


def test_one_log_line_gives_the_outcome_and_the_cost(
    store: Store, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handoff = stored_handoff(store)
    with capture_logs() as lines:
        used = result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).usage

    (line,) = (entry for entry in lines if entry["event"] == "handoff finished")
    assert (line["specialist"], line["status"], line["stop_reason"], line["turns"]) == (
        "researcher",
        "ok",
        "finished",
        1,
    )
    assert (line["input_tokens"], line["output_tokens"], line["cost_usd"]) == (
        used.input_tokens,
        used.output_tokens,
        used.cost_usd,
    )
    assert 0 <= line["seconds"] < 60
    assert "why" not in line


@pytest.mark.parametrize(("claims", "why"), [(0, "failed"), (MAX_CLAIMS, "too_many_claims")])
def test_the_log_line_of_a_failure_gives_its_kind_without_the_models_text(
    store: Store, redis_url: str, caplog: pytest.LogCaptureFixture, claims: int, why: str
) -> None:
    caplog.set_level(logging.INFO)
    leases = Leases(redis_url, SETTINGS.lease_s, watchdog=False)
    model = ScriptedModel(
        replies_in_order(
            answer_reply("", status="failed", problem="No access to the secret vault.")
        )
    )
    failing = Attempts(
        store, SETTINGS, "w1", leases, PayloadCache(store), Models(SETTINGS, lambda _: model)
    )
    handoff = stored_handoff(store)
    store.connection.redis.hset(
        handoff_key(store, handoff.job_id, handoff.handoff_id), "claims", claims
    )
    with capture_logs() as lines:
        failing.attempt(handoff.to_json(), handoff, set_up_agent)
    leases.stop()

    (line,) = (entry for entry in lines if entry["event"] == "handoff finished")
    assert (line["status"], line["why"]) == ("failed", why)
    assert "vault" not in str(lines)


def test_a_handoff_that_waits_for_budget_ends_at_the_deadline(
    store: Store, attempts: Attempts
) -> None:
    late = store.connection.now() + 0.3
    handoff = stored_handoff(store, HandoffLimits(deadline=late), max_turns=1)
    store.connection.redis.hset(keys.progress(handoff.job_id), "reserved_turns", 1)

    assert (
        result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).stop_reason
        is StopReason.DEADLINE
    )


def test_the_seconds_that_a_handoff_may_take_run_from_its_first_claim(
    store: Store, attempts: Attempts
) -> None:
    handoff = stored_handoff(store, HandoffLimits(max_seconds=60))
    a_minute_ago = int(store.connection.now() * 1000) - 60_000
    store.connection.redis.hset(
        handoff_key(store, handoff.job_id, handoff.handoff_id),
        "started_at",
        a_minute_ago,
    )

    assert (
        result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).stop_reason
        is StopReason.DEADLINE
    )


UNREADABLE = [
    pytest.param(b'={"kind": "of another version"}', id="not ours"),
    pytest.param(b"znot compressed", id="not compressed"),
]


@pytest.mark.parametrize("stored", UNREADABLE)
def test_unreadable_checkpoints_end_the_handoff_with_the_reason(
    store: Store, attempts: Attempts, stored: bytes
) -> None:
    handoff = stored_handoff(store)
    store.connection.redis.rpush(turns_key(store, handoff.job_id, handoff.handoff_id), stored)

    result = result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent))

    assert result.status is ResultStatus.FAILED
    assert "checkpoints of its earlier claims cannot be read" in (result.error or "")


@pytest.mark.parametrize("stored", UNREADABLE)
def test_a_handoff_with_too_many_claims_ends_regardless_of_its_checkpoints(
    store: Store, attempts: Attempts, stored: bytes
) -> None:
    handoff = stored_handoff(store)
    store.connection.redis.rpush(turns_key(store, handoff.job_id, handoff.handoff_id), stored)
    store.connection.redis.hset(
        handoff_key(store, handoff.job_id, handoff.handoff_id),
        "claims",
        MAX_CLAIMS,
    )

    assert (
        result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).stop_reason
        is StopReason.TOO_MANY_CLAIMS
    )


@pytest.mark.parametrize("claims", [0, MAX_CLAIMS])
def test_a_result_says_that_a_tool_with_effects_may_have_run_under_an_earlier_claim(
    store: Store, attempts: Attempts, claims: int
) -> None:
    handoff = stored_handoff(store)
    turns = turns_key(store, handoff.job_id, handoff.handoff_id)
    store.connection.redis.rpush(turns, pack(ToolCallStarted(tool_use_id="t1").to_json()))
    store.connection.redis.hset(
        handoff_key(store, handoff.job_id, handoff.handoff_id), "claims", claims
    )

    assert result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)).acted


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidTool("tool grep takes a name twice"), "tool grep takes a name twice"),
        (MissingCredentials("there is no key: set ANTHROPIC_API_KEY"), "set ANTHROPIC_API_KEY"),
        (KeyError("sk-secret"), "KeyError"),
    ],
    ids=["a tool", "no key", "a defect"],
)
def test_an_error_before_the_claim_ends_the_handoff_with_its_reason_and_no_secret(
    store: Store, attempts: Attempts, error: Exception, message: str
) -> None:
    handoff = stored_handoff(store)

    def cannot_set_up(*_: object) -> AgentSetup:
        raise error

    result = result_of(attempts.attempt(handoff.to_json(), handoff, cannot_set_up))

    assert result.status is ResultStatus.FAILED
    assert message in (result.error or "")
    assert "sk-secret" not in result.to_json()


def test_without_a_store_no_attempt_starts_and_the_message_is_handed_back(
    store: Store, attempts: Attempts
) -> None:
    handoff = stored_handoff(store)

    def is_away(*_: object) -> AgentSetup:
        raise StoreUnavailable("Redis cannot be reached")

    assert attempts.attempt(handoff.to_json(), handoff, is_away).end is AttemptEnd.HANDED_BACK
    assert (
        store.jobs.read_handoffs(handoff.job_id, [handoff.handoff_id])[handoff.handoff_id].claims
        == 0
    )


@pytest.mark.parametrize("defects", [1, 2], ids=["of this answer", "of any answer"])
def test_a_defect_after_an_answer_ends_the_handoff_as_failed(
    store: Store, attempts: Attempts, defects: int
) -> None:
    handoff = stored_handoff(store)
    results: list[HandoffResult] = []

    def conclude(_handoff: AgentHandoff, result: HandoffResult) -> Consequences:
        results.append(result)
        if len(results) <= defects:
            raise KeyError("sk-secret")
        return Consequences(payloads=("what follows from a failed one",))

    result = result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent, conclude))

    assert [result.status for result in results] == [ResultStatus.OK, ResultStatus.FAILED]
    assert result.status is ResultStatus.FAILED
    assert "KeyError" in (result.error or "")
    assert "sk-secret" not in result.to_json()
    assert result.turns == 1


def run_with_message_during_last_call(
    store: Store, attempts: Attempts, limits: HandoffLimits | None = None
) -> tuple[HandoffResult, list[StoredMessage]]:
    """Run a handoff whose user sends a message after the reply of the model and before the end.
    Return its result and the messages of its job.
    """
    attempts.models.make = lambda _settings: ScriptedModel(
        replies_in_order(answer_reply("Long.", claims=[]), answer_reply("Short.", claims=[]))
    )
    handoff = stored_handoff(store, limits)
    outputs: list[JsonValue] = []

    def conclude(_handoff: AgentHandoff, result: HandoffResult) -> Consequences:
        if not outputs:
            event = UserMessageSent(message_id=create_word(), text=make_ref("Make it shorter."))
            store.user_messages.send(handoff.job_id, event, "Make it shorter.")
        outputs.append(result.output)
        return Consequences()

    result = result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent, conclude))
    assert outputs[0] == "Long."
    assert outputs[-1] == result.output
    return result, list(store.job_summaries.read(handoff.job_id).messages)


def test_a_message_after_the_last_call_changes_the_result(store: Store, attempts: Attempts) -> None:
    result, (message,) = run_with_message_during_last_call(store, attempts)

    assert (result.status, result.output, result.turns) == (ResultStatus.OK, "Short.", 2)
    assert message.taken == ((result.handoff_id, 2),)


def test_a_message_after_the_last_turn_leaves_the_result(store: Store, attempts: Attempts) -> None:
    result, (message,) = run_with_message_during_last_call(
        store, attempts, HandoffLimits(max_turns=1)
    )

    assert (result.status, result.output, result.turns) == (ResultStatus.OK, "Long.", 1)
    assert message.taken == ()


def test_concurrent_threads_share_one_model(attempts: Attempts) -> None:
    """The first thread makes the model only after all threads have asked for it."""
    models_made, together = [], threading.Barrier(4)

    def make(_settings: Settings) -> Model:
        models_made.append(1)
        wait_until(lambda: threads_in(Models.get_model) == 4, expected="the other threads")
        return ScriptedModel(replies_in_order(answer_reply()))

    attempts.models.make = make

    def ask(_n: int) -> Model:
        together.wait()
        return attempts.models.get_model("some-model")

    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(ask, range(4)))
    assert len(models_made) == 1
    assert len(set(map(id, models))) == 1


def test_a_paid_reply_is_stored_if_the_store_fails_before_the_result(
    store: Store, attempts: Attempts
) -> None:
    handoff = stored_handoff(store)

    def is_away(*_: object) -> Consequences:
        raise StoreUnavailable("for a moment")

    with pytest.raises(StoreUnavailable):
        attempts.attempt(handoff.to_json(), handoff, set_up_agent, is_away)

    assert store.connection.redis.llen(turns_key(store, handoff.job_id, handoff.handoff_id)) == 1


def test_an_error_before_the_run_is_logged_for_its_handoff(
    store: Store, attempts: Attempts
) -> None:
    """The log context of another handoff does not apply."""
    handoff = stored_handoff(store)

    def breaks(*_: object) -> AgentSetup:
        raise RuntimeError

    with (
        logged_as(job_id=handoff.job_id, handoff_id="another.1"),
        capture_logs([merge_log_context]) as lines,
    ):
        attempts.prepare(handoff.to_json(), handoff, breaks)

    assert [line["handoff_id"] for line in lines] == [handoff.handoff_id]


def test_a_poisoned_spec_ends_the_handoff_as_failed_and_runs_nothing(
    store: Store, attempts: Attempts
) -> None:
    handoff = stored_handoff(store)
    poisoned = a_spec().model_copy(update={"tools": ("fetch_url",)}).to_json()
    store.connection.redis.hset(keys.blobs(handoff.job_id), handoff.specialist, pack(poisoned))

    result = result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent))

    assert (result.status, result.turns) == (ResultStatus.FAILED, 0)
    assert "does not match its digest" in (result.error or "")


def test_the_previous_result_of_a_step_adds_no_claim_to_another_step(
    store: Store, attempts: Attempts
) -> None:
    """Its worker may have written the name of another step into it. The worker of the next attempt
    may be of another specialist.
    """
    claim, forged = (Claim(id=f"look.c{number}", text=f"Fact {number}.") for number in (1, 9))
    look = a_result("look", claims=(claim,))
    previous = a_result("look", output="It is so. [look.c9]", claims=(forged,))
    remark = Feedback(author="assessor", text="Too short.", previous=make_ref(previous.to_json()))
    handoff = a_handoff(
        job_id=a_job(store),
        specialist=compute_digest(a_spec().to_json()),
        context=(context_of(look),),
        feedback=(remark,),
    )
    issue_handoff(store, handoff, a_spec().to_json(), look.to_json(), previous.to_json())
    known: dict[str, Claim] = {}

    def keep_claims(
        handoff: AgentHandoff, spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
    ) -> AgentSetup:
        known.update(loaded.collect_claims())
        return set_up_agent(handoff, spec, loaded, documents)

    result_of(attempts.attempt(handoff.to_json(), handoff, keep_claims))

    assert known == {"look.c1": claim}


def test_a_result_that_cannot_be_read_counts_as_failed_for_the_step_that_depends_on_it(
    store: Store, attempts: Attempts
) -> None:
    missing = ContextResult(step_id=StepId("earlier"), result=make_ref("not stored"))
    handoff = stored_handoff(store, context=(missing,))
    loaded_results: list[HandoffResult] = []

    def notes_results(
        handoff: AgentHandoff, spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
    ) -> AgentSetup:
        loaded_results.extend(loaded.results.values())
        return set_up_agent(handoff, spec, loaded, documents)

    result = result_of(attempts.attempt(handoff.to_json(), handoff, notes_results))

    assert result.status is ResultStatus.OK
    assert [(loaded_result.status, loaded_result.error) for loaded_result in loaded_results] == [
        (ResultStatus.FAILED, RESULT_UNREADABLE)
    ]


def test_an_agent_is_fitted_with_no_more_than_the_file_of_its_process_names(
    store: Store, attempts: Attempts
) -> None:
    handoff = stored_handoff(store, spec=a_spec("fetch_url", "now"))
    fitted_with = []

    def notes_tools(
        handoff: AgentHandoff, spec: SpecialistSpec, loaded: LoadedPayloads, documents: JobDocuments
    ) -> AgentSetup:
        fitted_with.append(spec.tools)
        return set_up_agent(handoff, spec, loaded, documents)

    own_spec = a_spec("now")
    attempts.attempt(handoff.to_json(), handoff, notes_tools, own_spec=own_spec)

    assert fitted_with == [("now",)]


def test_a_handoff_goes_on_with_its_second_model_while_the_provider_refuses_the_first(
    store: Store, redis_url: str
) -> None:
    settings = SETTINGS.model_copy(
        update={"offline": False, "anthropic_api_key": SecretStr("a-key")}
    )
    answers: dict[str, Reply | ModelError] = {
        "claude-haiku-5-5": ModelBusy("slow down", status=429, retry_after_s=300),
        "claude-sonnet-5-5": answer_reply("Rust.", claims=[]),
    }
    model = ScriptedModel(lambda call: answers[call.model])
    leases = Leases(redis_url, settings.lease_s, watchdog=False)
    models = Models(settings, lambda _settings: model)
    attempts = Attempts(store, settings, "w1", leases, PayloadCache(store), models)
    spec = a_spec().model_copy(update={"models": tuple(answers)})
    results: list[HandoffResult] = []
    for _ in range(2):
        handoff = stored_handoff(store, spec=spec)
        results.append(result_of(attempts.attempt(handoff.to_json(), handoff, set_up_agent)))
    leases.stop()

    assert [result.model for result in results] == ["claude-sonnet-5-5"] * 2
    assert [call.model for call in model.calls].count("claude-haiku-5-5") == 1
