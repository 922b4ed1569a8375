"""The model of a handoff, the rate-limit bucket of its calls, and the outcomes of the newest
model calls of a process for `handoff doctor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import import_module

from handoff_queue.shared.agent.model_fallback import ModelChoice
from handoff_queue.shared.agent.prompt_cache_prefixes import PromptCaches
from handoff_queue.shared.settings.optional_packages import without_collection
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.store.rate_limiter import compute_account
from handoff_queue.shared.types.batches import ProviderBatches
from handoff_queue.shared.types.context_edits import ContextEdit
from handoff_queue.shared.types.errors import MissingCredentials, ModelBusy, ModelError
from handoff_queue.shared.types.limits import MAX_MODEL_ERROR_CHARS
from handoff_queue.shared.types.model import CallProgress, Model, ModelCall, ModelReply
from handoff_queue.shared.types.names import REVIEWING_ROLES
from handoff_queue.shared.types.presence import MAX_MODELS, ModelCalls
from handoff_queue.shared.types.specialist import SpecialistSpec, Tier

MAX_NAME = 200
"""Characters of a model's name that are kept."""


@dataclass(slots=True)
class ModelCallLog:
    """Outcomes of the newest calls of each model. It keeps the `MAX_MODELS` models that were
    called last. All threads of a process share it.
    """

    now: Callable[[], float] = time.time
    """Function that returns Unix time in seconds."""
    _by_model: dict[str, ModelCalls] = field(default_factory=dict)
    """Outcomes by the name of the model. The model of the newest call comes last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list_newest(self) -> tuple[ModelCalls, ...]:
        """Return the outcomes of each model. The model of the newest call comes last."""
        with self._lock:
            return tuple(self._by_model.values())

    def record_success(self, model: str) -> None:
        """Record that the server answered a call."""
        self._store(ModelCalls(model=model[:MAX_NAME], succeeded_at=self.now()))

    def record_failure(self, model: str, error: ModelError) -> None:
        """Record that a call gave no reply."""
        now = self.now()
        name = model[:MAX_NAME]
        with self._lock:
            before = self._by_model.get(name, ModelCalls(model=name))
        message = " ".join(str(error).split())
        changes = {
            "failures": before.failures + 1,
            "error": message[:MAX_MODEL_ERROR_CHARS],
            "is_busy": isinstance(error, ModelBusy),
            "failing_since": before.failing_since or now,
            "failed_at": now,
        }
        self._store(before.model_copy(update=changes))

    def _store(self, calls: ModelCalls) -> None:
        with self._lock:
            self._by_model.pop(calls.model, None)
            self._by_model[calls.model] = calls
            while len(self._by_model) > MAX_MODELS:
                del self._by_model[next(iter(self._by_model))]


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """A model that records the outcome of each call in a log."""

    model: Model
    log: ModelCallLog

    def reply(self, call: ModelCall, on_progress: Callable[[CallProgress], None]) -> ModelReply:
        """Make the call, and record its outcome. An error of `on_progress` is not recorded,
        because it does not come from the server.

        Raises:
            ModelError: raised by the model.
        """
        try:
            reply = self.model.reply(call, on_progress)
        except ModelError as error:
            self.log.record_failure(call.model, error)
            raise
        self.log.record_success(call.model)
        return reply

    @property
    def batches(self) -> ProviderBatches | None:
        """Return the batches of the model's account. None: it has none."""
        batches: ProviderBatches | None = getattr(self.model, "batches", None)
        return batches

    def get_context_edits(self, model: str) -> Collection[ContextEdit]:
        """Return the edits that the provider of the model offers for it now."""
        offered_edits: Callable[[str], Collection[ContextEdit]] | None
        offered_edits = getattr(self.model, "get_context_edits", None)
        return offered_edits(model) if offered_edits else ()


MakeModel = Callable[[Settings], Model]


def create_provider_models(settings: Settings) -> MakeModel:
    """Return the function that makes the provider's models and the offline model.

    A process that will call a model runs this at its start. It imports the provider's SDK,
    which takes more processor time than all other imports, and checks that the settings are
    enough to make a model.

    Raises:
        UserError: there is no key, or packages or settings of the provider are missing.
    """
    with without_collection():
        if not settings.is_offline:
            import_module("genai_prices")
        from handoff_queue.shared.providers.anthropic.client_factory import create_model

        create_model(settings)
    return create_model


@dataclass(slots=True)
class Models:
    """The models of a process: one client for the provider, and one for the offline model."""

    settings: Settings
    make: MakeModel | None = None
    """Function that makes a model; None: `create_provider_models`."""
    calls: ModelCallLog = field(default_factory=ModelCallLog)
    """Outcomes of the newest calls of this process."""
    caches: PromptCaches = field(default_factory=PromptCaches)
    """Prompt caches of the provider that this process has used."""
    _models: dict[bool, RecordedModel] = field(default_factory=dict)
    """Models by whether they are the offline model."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def choose_name(self, requested_model: str | None, spec: SpecialistSpec) -> str:
        """Return the model of a handoff: the model that it requests, or else the model of its
        spec. A spec without a model gets the first of its models, or else the default of its tier.

        With offline settings, the result is always the offline model.

        The reviewing roles use the review model of the settings, if there is one, unless the
        handoff requests the offline model.

        Args:
            requested_model: name of the model that the handoff requests, or None.

        Raises:
            MissingCredentials: the settings are offline, and the handoff requests another model.
        """
        if self.settings.is_offline:
            if requested_model and requested_model != OFFLINE_MODEL:
                raise MissingCredentials(
                    f"{requested_model} is the model of this step, and this worker has no key for"
                    " it; set ANTHROPIC_API_KEY for the worker"
                )
            return OFFLINE_MODEL
        review_model = self.settings.review_model
        if review_model and spec.name in REVIEWING_ROLES and requested_model != OFFLINE_MODEL:
            return review_model
        if spec.models:
            default = spec.models[0]
        elif spec.tier is Tier.CAPABLE:
            default = self.settings.supervisor_model
        else:
            default = self.settings.specialist_model
        return requested_model or spec.model or default

    def list_choices(
        self, requested_model: str | None, spec: SpecialistSpec
    ) -> tuple[ModelChoice, ...]:
        """Return the models that may serve the turns of a handoff, in the order of preference.

        They are the models of the spec, unless the handoff requests a model, or the settings
        decide. Then there is one.

        Raises:
            MissingCredentials: see `choose_name`.
        """
        name = self.choose_name(requested_model, spec)
        names = [name]
        if requested_model is None and spec.models and name == spec.models[0]:
            names = list(spec.models)
        choices: list[ModelChoice] = []
        for model_name in names:
            choices.append(ModelChoice(model_name, self.get_bucket(model_name)))
        return tuple(choices)

    def get_model(self, name: str) -> RecordedModel:
        """Return the client for the model of this name."""
        offline = name == OFFLINE_MODEL
        with self._lock:
            if offline not in self._models:
                make = self.make or create_provider_models(self.settings)
                settings = self.settings
                if offline:
                    settings = settings.model_copy(update={"offline": True})
                self._models[offline] = RecordedModel(make(settings), self.calls)
            return self._models[offline]

    def get_batches(self, name: str) -> ProviderBatches | None:
        """Return the batches for calls of the model of this name. None: there are no batches, as
        for the offline model, which costs nothing.
        """
        if name == OFFLINE_MODEL or self.settings.is_offline:
            return None
        return self.get_model(name).batches

    def get_context_edits(self, name: str) -> Collection[ContextEdit]:
        """Return the edits that the provider offers for the model of this name now."""
        if name == OFFLINE_MODEL or self.settings.is_offline:
            return ()
        return self.get_model(name).get_context_edits(name)

    def get_bucket(self, name: str) -> str | None:
        """Return the rate-limit bucket of the model of this name, or None without limits."""
        if name == OFFLINE_MODEL:
            return None
        secret = self.settings.anthropic_api_key or self.settings.anthropic_auth_token
        key = secret.get_secret_value() if secret else None
        account = compute_account(
            self.settings.model_provider, self.settings.anthropic_base_url, key
        )
        return f"{account}:{name}"
