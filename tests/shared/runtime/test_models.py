"""The model name of a handoff determines its client, and whether rate limits apply."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from handoff_queue.shared.runtime.models import Models, create_provider_models
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.errors import MissingCredentials, UserError
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.specialist import SpecialistSpec
from tests.doubles.handoffs import a_spec
from tests.doubles.scripted_model import ScriptedModel, replies_in_order

WITH_KEY = Settings(anthropic_api_key=SecretStr("sk-0123456789"))


def specialist(model: str | None) -> SpecialistSpec:
    return a_spec().model_copy(update={"model": model})


@pytest.mark.parametrize(
    ("of_handoff", "of_spec"),
    [(OFFLINE_MODEL, None), (None, OFFLINE_MODEL), (OFFLINE_MODEL, "some-model")],
)
def test_a_user_of_the_offline_model_calls_no_provider(
    of_handoff: str | None, of_spec: str | None
) -> None:
    created: list[bool] = []

    def make(settings: Settings) -> Model:
        created.append(settings.is_offline)
        return ScriptedModel(replies_in_order())

    models = Models(WITH_KEY, make)
    name = models.choose_name(of_handoff, specialist(of_spec))
    models.get_model(name)

    assert (name, created, models.get_bucket(name)) == (OFFLINE_MODEL, [True], None)


def test_a_handoffs_model_overrides_its_specialists_model() -> None:
    models = Models(WITH_KEY)
    assert models.choose_name("asked-for", specialist("usual")) == "asked-for"
    assert models.choose_name(None, specialist("usual")) == "usual"
    assert (models.get_bucket("usual") or "").endswith(":usual")


def test_without_a_key_a_requested_model_is_refused_and_a_specialists_model_is_not() -> None:
    models = Models(Settings(offline=True))
    assert models.choose_name(None, specialist("usual")) == OFFLINE_MODEL
    with pytest.raises(MissingCredentials, match="asked-for is the model of this step"):
        models.choose_name("asked-for", a_spec())


@pytest.mark.parametrize("role", ["assessor", "judge"])
def test_the_judge_has_a_separate_model_if_the_settings_name_one(
    role: str,
) -> None:
    judging = specialist(None).model_copy(update={"name": role})
    models = Models(WITH_KEY.model_copy(update={"review_model": "second-opinion"}))

    assert models.choose_name("asked-for", judging) == "second-opinion"
    assert models.choose_name(OFFLINE_MODEL, judging) == OFFLINE_MODEL
    assert models.choose_name("asked-for", specialist(None)) == "asked-for"
    assert Models(WITH_KEY).choose_name("asked-for", judging) == "asked-for"


def test_a_process_with_missing_provider_settings_fails_at_its_start() -> None:
    with pytest.raises(UserError, match="HANDOFF_MODEL_PROVIDER=foundry"):
        create_provider_models(Settings.model_validate({"model_provider": "foundry"}))


SEVERAL = ("claude-haiku-5-5", "claude-sonnet-5-5")


def names_of(models: Models, asked: str | None, spec: SpecialistSpec) -> list[str]:
    return [choice.name for choice in models.list_choices(asked, spec)]


def test_a_specialist_with_several_models_has_them_in_the_order_of_its_file() -> None:
    spec = specialist(None).model_copy(update={"models": SEVERAL})
    assert names_of(Models(WITH_KEY), None, spec) == list(SEVERAL)


def test_each_of_several_models_has_its_own_rate_limits() -> None:
    spec = specialist(None).model_copy(update={"models": SEVERAL})
    first, second = Models(WITH_KEY).list_choices(None, spec)
    assert first.bucket != second.bucket


def test_the_model_that_a_handoff_requests_replaces_several_models() -> None:
    spec = specialist(None).model_copy(update={"models": SEVERAL})
    assert names_of(Models(WITH_KEY), "asked-for", spec) == ["asked-for"]
    assert names_of(Models(WITH_KEY), SEVERAL[0], spec) == [SEVERAL[0]]


def test_the_offline_model_replaces_several_models() -> None:
    spec = specialist(None).model_copy(update={"models": SEVERAL})
    assert names_of(Models(Settings(offline=True)), None, spec) == [OFFLINE_MODEL]
