"""The page of the evaluations: figures, the tenant wall and hostile text."""

from __future__ import annotations

from handoff_queue.supervisor.client.client import Client
from tests.shared.store.test_golden_set_history import a_run
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.test_money import rows
from tests.supervisor.serve.console.visitor import Visitor

HOSTILE = "<script>document.title='taken'</script>"


def test_each_row_has_the_share_the_cost_and_the_change(jobs: Client, local: Visitor) -> None:
    first, second = a_run("first"), a_run("second", not_run=2, microusd=None)
    better = second.variants[0].model_copy(update={"passed": 4, "model": "some-model"})
    jobs.store.evaluations.add(first)
    jobs.store.evaluations.add(second.model_copy(update={"variants": (*second.variants, better)}))

    _, same, other, oldest = rows(local.get("/evaluations").text)

    assert same[1:] == [
        "second2 not run", "team", "of the workers", "3 of 4", "75%", "", "no change", "4.50",
        "900", "$0.0001", "not known",
    ]  # fmt: skip
    assert (other[3], other[5], other[7], other[-1]) == ("some-model", "100%", "", "")
    assert (oldest[1], oldest[7], oldest[-1]) == ("first", "", "$0.0001")


def test_a_set_without_a_measured_job_says_so(jobs: Client, local: Visitor) -> None:
    run = a_run("first")
    unmeasured = run.variants[0].model_copy(update={"trials": 0, "passed": 0, "score": None})
    jobs.store.evaluations.add(run.model_copy(update={"variants": (unmeasured,)}))

    assert "not measured" in local.get("/evaluations").text


def test_the_page_needs_a_token_without_a_tenant(jobs: Client, visitor_with: VisitorOf) -> None:
    jobs.store.evaluations.add(a_run("first"))
    acme = visitor_with("operate", "acme")

    assert acme.get("/evaluations").status_code == 403
    assert 'href="/evaluations"' not in acme.get("/").text
    assert "first" in visitor_with("read").get("/evaluations").text


def test_hostile_names_are_text(jobs: Client, local: Visitor) -> None:
    jobs.store.evaluations.add(a_run(HOSTILE, golden=HOSTILE))

    text = local.get("/evaluations").text

    assert "&lt;script&gt;document" in text
    assert HOSTILE not in text
