"""Which model a handoff is run with, and whom a provider counts its calls for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.agent.anthropic_clients import model_from
from shared.agent.model import Model
from shared.config import OFFLINE_MODEL, Settings
from shared.ledger.pace import account_of
from shared.wire.errors import MissingCredentials
from shared.wire.names import JUDGING_ROLES
from shared.wire.specialist import SpecialistSpec, Tier


@dataclass(slots=True)
class Models:
    """One client a process for each of: the provider's, the offline one."""

    settings: Settings
    make: Callable[[Settings], Model] = model_from
    _made: dict[bool, Model] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def name_of(self, asked: str | None, spec: SpecialistSpec) -> str:
        """`asked` (the handoff's own), or the spec's, or the default of its tier; where there is no key, the offline model's.

        The roles that judge have a model of their own if the settings name one, whatever was asked for but the offline model.

        Raises:
            MissingCredentials: a model was asked for by name, and there is no key for it here.
        """
        if not self.settings.is_offline:
            if spec.name in JUDGING_ROLES and self.settings.reviewer_model and asked != OFFLINE_MODEL:
                return self.settings.reviewer_model
            default = self.settings.supervisor_model if spec.tier is Tier.CAPABLE else self.settings.specialist_model
            return asked or spec.model or default
        if asked and asked != OFFLINE_MODEL:
            raise MissingCredentials(f"{asked} was asked for, and there is no key for it; set ANTHROPIC_API_KEY there")
        return OFFLINE_MODEL

    def of(self, name: str) -> Model:
        """The one that answers to this name."""
        offline = name == OFFLINE_MODEL
        with self._lock:
            if offline not in self._made:
                self._made[offline] = self.make(self.settings.model_copy(update={"offline": True}) if offline else self.settings)
            return self._made[offline]

    def lane_of(self, name: str) -> str | None:
        """The lane of calls to the model of this name; None: nobody counts them."""
        if name == OFFLINE_MODEL:
            return None
        secrets = (self.settings.anthropic_api_key, self.settings.anthropic_auth_token)
        key = next((one.get_secret_value() for one in secrets if one), None)
        return f"{account_of(self.settings.model_provider, self.settings.anthropic_base_url, key)}:{name}"
