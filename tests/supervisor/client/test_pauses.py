"""Agents are paused and unpaused by name. A mistyped name is refused with the closest name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.errors import UserError
from tests.supervisor.shell import Shell, running_shell


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    with running_shell(redis_url, "researcher", "writer") as supervisor:
        yield supervisor


@pytest.mark.parametrize("agent", ["reseacher", "Researcher"])
def test_a_mistyped_agent_gets_the_closest_name(shell: Shell, agent: str) -> None:
    for command in (shell.jobs.pause, shell.jobs.unpause):
        with pytest.raises(
            UserError, match=rf"^no worker .* '{agent}': did you mean researcher\?$"
        ):
            command(agent)
    assert shell.store.pauses.read_all() == {}


def test_an_unknown_agent_gets_the_list_of_all_agents(shell: Shell) -> None:
    with pytest.raises(UserError, match=r"'poet': use one of .*planner, .*researcher, .*writer$"):
        shell.jobs.unpause("poet")


def test_a_resume_with_a_mistyped_name_names_the_paused_agent_and_resumes_nothing(
    shell: Shell,
) -> None:
    shell.jobs.pause("researcher")

    with pytest.raises(UserError, match=r"^'reseacher' is not paused: did you mean researcher\?$"):
        shell.jobs.unpause("reseacher")
    assert list(shell.store.pauses.read_all()) == ["researcher"]


def test_a_resume_of_an_agent_that_is_not_paused_is_not_an_error(shell: Shell) -> None:
    shell.jobs.pause("researcher")

    assert shell.jobs.unpause("writer") is None
    assert shell.jobs.unpause("researcher") == 0
