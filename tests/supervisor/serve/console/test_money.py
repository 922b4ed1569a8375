"""The money page: sums, caps, the tenant wall and hostile names."""

from __future__ import annotations

import re
from html import unescape

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.metrics import OTHER
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor

HOSTILE = "<script>document.title='taken'</script>"


def count(
    jobs: Client, usd: int, tenant: str = "acme", role: str = "writer", days_ago: int = 0
) -> None:
    """Count a call of `usd` micro-dollars with 100 input tokens, 25 cached tokens among them."""
    day = int(jobs.store.connection.now()) // DAY_S - days_ago
    amounts = {"calls": 1, "usd": usd, "input": 100, "cached": 25, "saved": 40_000}
    redis = jobs.store.connection.redis
    for name, more in amounts.items():
        redis.hincrby(keys.spending(day), f"{name}\t{tenant}\t{role}\tsome-model\tteam", more)
    redis.expire(keys.spending(day), 60)


def rows(text: str) -> list[list[str]]:
    """Return the texts of the cells of each row of each table."""
    table: list[list[str]] = []
    for row in re.findall(r"<tr[ >].*?</tr>", text, re.DOTALL):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        table.append([unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in cells])
    return table


def test_the_page_sums_by_day_tenant_model_specialist_and_mode(
    jobs: Client, local: Visitor
) -> None:
    count(jobs, 2_000_000)
    count(jobs, 500_000, "globex", "reviewer", days_ago=3)

    table = rows(local.get("/money?days=7").text)

    for name, usd, calls in (
        ("acme", "$2.0000", "1"),
        ("globex", "$0.5000", "1"),
        ("some-model", "$2.5000", "2"),
        ("writer", "$2.0000", "1"),
        ("reviewer", "$0.5000", "1"),
        ("team", "$2.5000", "2"),
    ):
        (row,) = [row for row in table if row[0] == name and row[1] == usd]
        assert row[3:] == [calls, str(100 * int(calls)), "25%"]
    days = [row for row in table if re.fullmatch(r"\d{4}-\d\d-\d\d", row[0])]
    assert [row[1] for row in days] == ["$2.0000", "$0.5000"], "days with calls, the newest first"


def test_the_page_shows_the_money_that_shared_results_saved(jobs: Client, local: Visitor) -> None:
    day = int(jobs.store.connection.now()) // DAY_S
    place = "acme\twriter\tsome-model\tteam"
    amounts = {f"copies\t{place}": 2, f"spared\t{place}": 30_000}
    jobs.store.connection.redis.hset(keys.spending(day), mapping=amounts)
    jobs.store.connection.redis.expire(keys.spending(day), 60)

    text = local.get("/money?days=7").text

    assert "<dt>Saved by 2 shared results</dt><dd>$0.0300</dd>" in text


def test_the_page_shows_the_money_that_the_cache_saved(jobs: Client, local: Visitor) -> None:
    count(jobs, 2_000_000)

    text = local.get("/money?days=7").text

    assert "<dt>Input from a cache</dt><dd>25%</dd>" in text
    assert "<dt>Saved by the cache</dt><dd>$0.0400</dd>" in text


def test_a_period_leaves_older_days_out(jobs: Client, local: Visitor) -> None:
    count(jobs, 2_000_000)
    count(jobs, 500_000, "globex", days_ago=20)

    assert "globex" not in local.get("/money?days=7").text
    assert "globex" in local.get("/money?days=30").text
    assert local.get("/money?days=8").status_code == 422


def test_the_caps_of_today_and_their_rest_are_shown(jobs: Client, local: Visitor) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps(day_usd=9_000_000, tenant_day_tokens=500))
    day = int(jobs.store.connection.now()) // DAY_S
    for of in (None, "acme"):
        jobs.store.connection.redis.hset(
            keys.day(day, of), mapping={"usd": 2_000_000, "input_tokens": 100}
        )
        jobs.store.connection.redis.expire(keys.day(day, of), 60)
    count(jobs, 2_000_000)

    table = rows(local.get("/money").text)

    assert ["all tenants", "$2.0000", "$9.0000", "$7.0000", "100", "none", "no limit"] in table
    assert ["acme", "$2.0000", "none", "no limit", "100", "500", "400"] in table


def test_a_tenant_sees_only_its_spending(jobs: Client, visitor_with: VisitorOf) -> None:
    count(jobs, 2_000_000, "acme", "writer")
    count(jobs, 500_000, "globex", "reviewer")
    count(jobs, 700_000, OTHER, "fact_checker")

    acme = visitor_with("read", "acme").get("/money?tenant=globex").text
    named_other = visitor_with("read", OTHER).get("/money").text

    assert "$2.0000" in acme
    assert not {"globex", "reviewer", "fact_checker", "all tenants"} & set(re.findall(r"\w+", acme))
    assert "$0.7000" not in named_other


def test_a_user_of_all_tenants_chooses_one(jobs: Client, local: Visitor) -> None:
    count(jobs, 2_000_000, "acme", "writer")
    count(jobs, 500_000, "globex", "reviewer")

    text = local.get("/money?tenant=globex").text

    assert "reviewer" in text
    assert "acme" not in text


@pytest.mark.parametrize("path", ["/money", f"/money?tenant={HOSTILE}"])
def test_hostile_names_are_text(path: str, jobs: Client, local: Visitor) -> None:
    count(jobs, 2_000_000, HOSTILE, HOSTILE)

    text = local.get(path).text

    assert "&lt;script&gt;document" in text
    assert HOSTILE not in text


def test_a_call_without_a_known_price_makes_the_amount_a_lower_bound(
    jobs: Client, local: Visitor
) -> None:
    count(jobs, 2_000_000)
    day = int(jobs.store.connection.now()) // DAY_S
    jobs.store.connection.redis.hincrby(
        keys.spending(day), "unpriced\tacme\twriter\tsome-model\tteam", 1
    )

    assert "at least $2.0000" in [row[1] for row in rows(local.get("/money").text)]
