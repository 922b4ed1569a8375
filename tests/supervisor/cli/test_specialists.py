"""Descriptions of specialists are printed in full on every terminal. `handoff specialists --lint`
names a runner that is not installed on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from handoff_queue.shared.settings import optional_packages
from handoff_queue.shared.specialists import find_specialists_folder, load_specialists
from handoff_queue.shared.store.pauses import Pause
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.types.specialist import RunnerKind, SpecialistSpec
from handoff_queue.supervisor.cli.specialists import build_specialists_view, iterate_runner_notes
from tests.doubles.handoffs import a_spec


@pytest.fixture(scope="module")
def specs() -> dict[str, SpecialistSpec]:
    return load_specialists(find_specialists_folder())


def served(spec: SpecialistSpec) -> ServedSpecialist:
    return ServedSpecialist(spec, spec.content_digest, ("one", "two"), slots=16, queued=3)


def text_of(specs: dict[str, SpecialistSpec], columns: int, *, live: bool) -> str:
    written = StringIO()
    console = Console(file=written, width=columns, highlight=False, markup=False, emoji=False)
    console.print(
        build_specialists_view(
            specs, {name: served(spec) for name, spec in specs.items()} if live else None, columns
        )
    )
    return written.getvalue()


@pytest.mark.parametrize("columns", [40, 60, 80, 119, 120, 160, 300])
@pytest.mark.parametrize("live", [False, True])
def test_descriptions_are_printed_completely(
    specs: dict[str, SpecialistSpec], columns: int, live: bool
) -> None:
    text = text_of(specs, columns, live=live)

    words = set(text.split())
    for name, spec in specs.items():
        assert name in words
        assert set(spec.description.split()) <= words, name
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= columns


def test_a_narrow_terminal_gets_paragraphs(specs: dict[str, SpecialistSpec]) -> None:
    text = " ".join(text_of(specs, 40, live=True).split())

    for spec in specs.values():
        assert " ".join(spec.description.split()) in text
    assert "2 workers, 16 slots, 3 queued" in text


def test_a_description_cannot_control_the_terminal() -> None:
    spec = SpecialistSpec(
        name="poet",
        description="Writes verses.\x1b[2J Not for prose.",
        instructions="You write verses of four lines.",
    )

    for columns in (40, 160):
        assert "\x1b" not in text_of({"poet": spec}, columns, live=False)


def test_a_paused_specialist_is_marked(specs: dict[str, SpecialistSpec]) -> None:
    served_specialists = {"researcher": replace(served(specs["researcher"]), paused=Pause(at=1.0))}

    for columns in (40, 160):
        written = StringIO()
        Console(file=written, width=columns).print(
            build_specialists_view({"researcher": specs["researcher"]}, served_specialists, columns)
        )
        assert "researcher (paused)" in written.getvalue()


def test_a_missing_runner_is_one_line_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"agent-sdk": ("no_such_package",)}
    monkeypatch.setattr(optional_packages, "PACKAGES", packages)
    spec = a_spec(name="looker").model_copy(update={"runner": RunnerKind.AGENT_SDK})

    assert list(iterate_runner_notes([a_spec(), spec])) == [
        "looker: runner: agent-sdk needs the package no_such_package: install"
        " the extra agent-sdk of handoff-queue on the machine of its worker"
    ]


def test_an_installed_runner_needs_no_line() -> None:
    spec = a_spec(name="looker").model_copy(update={"runner": RunnerKind.AGENT_SDK})

    assert not list(iterate_runner_notes([spec]))
