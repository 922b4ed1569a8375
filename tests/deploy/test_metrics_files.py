"""The dashboard, the alert rules and the page of metrics name what a server really answers.

A real job runs in real processes. Then a test makes each fault that no healthy job has, so that
every metric has a time series.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import SharedRun
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_events import JobStatus
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.metrics import COUNTERS, GAUGES, HISTOGRAMS, PREFIX
from tests.docs.pages import blocks, text_of
from tests.doubles.jobs import (
    a_job,
    expire_lease,
    finish_with,
    granted_claim,
    issue,
    model_reply,
    result_of,
)
from tests.running_system import DOCUMENTS, running_system
from tests.supervisor.serve.conftest import LOCAL, URL
from tests.supervisor.serve.scrapes import Series, scrape, value

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
PANELS = json.loads((DEPLOY / "grafana" / "handoff-queue.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
FILTERS = {"$tenant": ".*", "$agent": ".*", "$__rate_interval": "5m"}
"""Variables of the dashboard -> a value for the test."""
ADDED = {"le"}
"""Label that Prometheus's format adds to the buckets of a histogram."""


def rare_faults(store: Store) -> None:
    """Make a lost lease, a call from the cache, a call without a price, a copied result and a dead
    letter. A job waits for a worker.
    """
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1", "d.1", role="legal")
    dead = granted_claim(store, job_id, "a.1")
    assert dead.reserve(WorstCase(10, 10, 10, "some-model")) is None
    expire_lease(store, dead)
    store.due_work.sweep()
    live = granted_claim(store, job_id, "b.1")
    assert live.reserve(WorstCase(10, 10, 10, "some-model")) is None
    usage = Usage(
        input_tokens=9,
        output_tokens=1,
        cache_read_tokens=5,
        cache_saved_microusd=2,
        batch_calls=1,
        batch_saved_microusd=1,
        cache_surcharge_microusd=1,
        cost_microusd=None,
    )
    live.checkpoint(model_reply().model_copy(update={"usage": usage}))
    copied = granted_claim(store, job_id, "c.1")
    shared = SharedRun(job_id=job_id, handoff_id=HandoffId("b.1"), saved_microusd=5)
    finish_with(copied, result_of(copied).model_copy(update={"shared": shared, "model": "m"}))
    store.dead_letters.add("legal", "no JSON", "{")
    store.presence.announce_unplanned_job(job_id, ("nosuch",), store.connection.now())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[Series, float]:
    """Return the scrape of a server after a real job."""
    with running_system(tmp_path_factory.mktemp("metrics")) as system:
        jobs = system.admin
        request = Request("Compare HNSW and IVF.", documents=DOCUMENTS, tenant="acme")
        job_id = jobs.submit(request)
        assert jobs.wait(job_id, 60) is JobStatus.OK
        rare_faults(jobs.store)
        app = make_application(AsyncClient(jobs), Settings(offline=True))
        with TestClient(app, base_url=URL, client=LOCAL) as http:
            return scrape(http)


@pytest.fixture
def labels(seen: dict[Series, float]) -> dict[str, set[str]]:
    """Return the labels of each sample's name."""
    names: dict[str, set[str]] = defaultdict(set)
    for name, pairs in seen:
        names[name] |= {label for label, _ in pairs}
    return names


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression of the dashboard and the rules, with its title."""
    for panel in PANELS["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, text in FILTERS.items():
                expression = expression.replace(variable, text)
            yield panel["title"], expression
    for rule in RULES:
        yield rule["alert"], rule["expr"]


def parts_of(node: Any) -> Iterator[Any]:
    """Yield an expression and all expressions in it."""
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        if (child := getattr(node, name, None)) is not None:
            yield from parts_of(child)
    for child in getattr(node, "args", ()):
        yield from parts_of(child)


def selectors_of(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of an expression, with the labels of its filter."""
    for part in parts_of(promql_parser.parse(expression)):
        if isinstance(part, promql_parser.VectorSelector):
            yield part.name or "", {matcher.name for matcher in part.matchers.matchers}


def grouped_by(expression: str) -> set[str]:
    """Return the labels by which an expression groups."""
    labels: set[str] = set()
    for part in parts_of(promql_parser.parse(expression)):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            labels |= set(part.modifier.labels)
    return labels


def test_a_job_was_counted(seen: dict[Series, float]) -> None:
    ended = value(seen, "handoff_jobs_ended_total", tenant="acme", outcome="ok")

    assert ended == 1
    assert sum(count for (name, _), count in seen.items() if name == "handoff_slots") > 0


def test_every_metric_of_the_page_is_in_a_scrape_with_its_labels(
    labels: dict[str, set[str]],
) -> None:
    rows = re.findall(r"^\| `(handoff_\w+)` \| ([^|]*)\|", text_of("reference/metrics"), re.M)
    listed = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    histograms = {f"{PREFIX}{instrument.name}" for instrument in HISTOGRAMS}

    assert len(listed) == len((*COUNTERS, *HISTOGRAMS, *GAUGES))
    for name, its_labels in listed.items():
        scraped = labels[f"{name}_bucket"] - ADDED if name in histograms else labels.get(name)
        assert scraped == its_labels, name


def test_a_scrape_has_no_metric_that_the_page_does_not_list(labels: dict[str, set[str]]) -> None:
    listed = set(re.findall(r"^\| `(handoff_\w+)`", text_of("reference/metrics"), re.M))

    unlisted = {re.sub(r"_(bucket|sum|count)$", "", name) for name in labels} - listed

    assert unlisted == set()


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_a_panel_or_a_rule_names_metrics_and_labels_that_exist(
    title: str, expression: str, labels: dict[str, set[str]]
) -> None:
    selectors = list(selectors_of(expression))

    assert selectors, title
    known: set[str] = set()
    for metric, filters in selectors:
        assert metric in labels, f"{title}: {metric}"
        assert filters <= labels[metric], f"{title}: {metric} has only {labels[metric]}"
        known |= labels[metric]
    assert grouped_by(expression) <= known, title


def test_the_values_that_the_rules_filter_by_are_possible(seen: dict[Series, float]) -> None:
    outcomes = {dict(pairs)["outcome"] for name, pairs in seen if name == "handoff_handoffs_total"}
    agents = {dict(pairs)["agent"] for name, pairs in seen if name == "handoff_queue_depth"}

    assert "ok" in outcomes
    assert "roles" in agents


def test_a_legend_or_a_text_shows_only_labels_that_its_expression_keeps() -> None:
    for panel in PANELS["panels"]:
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            expression = target["expr"].replace("$__rate_interval", "5m")
            assert shown <= grouped_by(expression), panel["title"]
    for rule in RULES:
        shown = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert shown <= grouped_by(rule["expr"]), rule["alert"]


def test_every_rule_has_the_fields_that_prometheus_knows() -> None:
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert {"summary", "description"} == set(rule["annotations"])
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))


def test_the_filters_of_the_dashboard_query_labels_that_exist(
    labels: dict[str, set[str]],
) -> None:
    for variable in PANELS["templating"]["list"][1:]:
        query = variable["query"]["query"]
        metrics = re.findall(r"handoff_\w+", query)
        assert metrics, query
        for metric in metrics:
            assert variable["name"] in labels[metric], query


def test_the_page_lists_every_alert_and_its_expressions_are_valid() -> None:
    page = text_of("how-to/metrics")

    assert set(re.findall(r"`(Handoff\w+)`", page)) == {rule["alert"] for rule in RULES}
    for expression in blocks(page, "promql"):
        assert list(selectors_of(expression))
