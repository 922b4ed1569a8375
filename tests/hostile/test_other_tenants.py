"""A job gets no text of another tenant's job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, json_reply, result_reply
from tests.hostile.obedient_system import ObedientSystem, obedient_system

SECRET = "The offer of acme is 4,711 euros."


def obey(request: Json) -> Reply:
    """Answer as each agent: the router chooses one specialist, which states the secret."""
    if "route" in answer_properties(request):
        return json_reply({"route": "single", "specialist": "generalist", "why": ""})
    return result_reply(SECRET)


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    with obedient_system(redis_url, obey) as running:
        yield running


def test_a_follow_up_of_another_tenants_job_is_refused_before_a_model_sees_its_result(
    system: ObedientSystem,
) -> None:
    jobs = system.shell.jobs
    secret_job = jobs.submit(Request("What is our offer?", tenant="acme", mode=Mode.SINGLE))
    system.run(secret_job)

    for tenant in ("globex", "default", "ACME"):
        with pytest.raises(UserError, match=f"{secret_job} is a job of another tenant"):
            jobs.submit(Request("What was their offer?", tenant=tenant, after=secret_job))

    follow_up = jobs.submit(
        Request("Now in dollars.", tenant="acme", after=secret_job, mode=Mode.SINGLE)
    )
    system.run(follow_up)
    assert len(jobs.newest()) == 2
    assert system.requests_with(SECRET)
