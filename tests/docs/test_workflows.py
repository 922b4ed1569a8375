"""The workflow of docs/how-to/workflows.md runs, and the tables of docs/reference/workflow-files.md
are those of the code.
"""

from __future__ import annotations

from pathlib import Path

from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.workflows import (
    ForEach,
    Items,
    Workflow,
    read_items,
    read_workflow,
)
from handoff_queue.supervisor.workflows.expansion import (
    MAX_DEPENDENCIES,
    MAX_PLAN_CHARS,
    MAX_STEPS,
    expand,
)
from handoff_queue.supervisor.workflows.items_file import MAX_BYTES as MAX_ITEM_BYTES
from handoff_queue.supervisor.workflows.parser import (
    FIELDS,
    MAX_BYTES,
    MAX_WRITTEN_STEPS,
    STEP_FIELDS,
)
from handoff_queue.supervisor.workflows.template import ITEM, REQUEST
from handoff_queue.workers.specialists import BUILT_IN
from tests.docs.pages import blocks, coded, rows, sections, spans, text_of
from tests.supervisor.workflows.workflow_files import read_built_in_workflows

GUIDE = sections(text_of("how-to/workflows"))
SECTIONS = sections(text_of("reference/workflow-files"))
EXAMPLE = GUIDE["Write a workflow for the rows of a table"]


def example(folder: Path) -> tuple[Workflow, Items]:
    (steps,) = blocks(EXAMPLE, "yaml")
    (table,) = blocks(EXAMPLE, "csv")
    (folder / "complaints.yaml").write_text(steps)
    (folder / "complaints.csv").write_text(table)
    return read_workflow(str(folder / "complaints.yaml")), read_items(folder / "complaints.csv")


def column(heading: str) -> list[str]:
    return [coded(row[0]) for row in rows(SECTIONS[heading])]


def test_the_example_becomes_the_plan_that_the_page_speaks_of(tmp_path: Path) -> None:
    workflow, items = example(tmp_path)

    plan = expand(workflow, "Be kind.", rows=items.rows)

    assert [step.id for step in plan.steps] == [
        "check_0001",
        "check_0002",
        "answer_0001",
        "answer_0002",
        "summary",
    ]
    assert plan.by_id[plan.steps[3].id].depends_on == ("check_0002",)
    assert "an order arrived late" in plan.steps[0].task
    assert set(workflow.specialists) <= {path.stem for path in BUILT_IN.glob("*.md")}


def test_the_fields_are_the_readers() -> None:
    assert column("Fields") == list(FIELDS)
    assert column("Fields of a step") == list(STEP_FIELDS)
    assert f'"{DEFAULT_FALLBACK}"' in SECTIONS["Fields of a step"]
    assert set(spans(SECTIONS["Fields"])) >= set(Synthesis)


def test_the_items_of_a_repeated_step_are_listed() -> None:
    assert column("Repeated steps") == list(ForEach)
    assert column("Placeholders")[:2] == [f"{{{REQUEST}}}", f"{{{ITEM}}}"]


def test_the_limits_are_the_codes() -> None:
    section = " ".join(SECTIONS["Repeated steps"].split())

    assert f"{MAX_ITEM_BYTES // 1_000_000} MB" in section
    assert (
        f"{MAX_STEPS:,} steps, {MAX_DEPENDENCIES:,} dependencies and {MAX_PLAN_CHARS:,}"
        " characters" in section
    )
    assert f"more than {MAX_BYTES:,} bytes or {MAX_WRITTEN_STEPS:,} steps" in SECTIONS["Errors"]


def test_the_built_in_ones_are_listed_with_their_steps() -> None:
    listed = {coded(row[0]): row[2] for row in rows(GUIDE["Start from a built-in workflow"])}
    built_in = read_built_in_workflows()

    assert list(listed) == [workflow.name for workflow in built_in]
    assert all(
        f"`{step.id}`" in listed[workflow.name] for workflow in built_in for step in workflow.steps
    )
