"""Ordinary URLs, and private documents about the same subjects.

`python -m tests.hostile.ordinary_urls` prints how many of the URLs need a person after a handoff
has read each of the documents.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from urllib.parse import quote_plus

from handoff_queue.shared.agent.seen_texts import url_carries_private_text

REPORT = """
Quarterly report of Corticeira Sado, confidential

The margin in Lisbon fell to 48,713 euros in the third quarter of 2025, as Amalia Nogueira
reports. Revenue of the cork division rose by 7.4 % to 12,384,550 euros. The price of raw cork in
Setubal was 77 euros a ton below the market price. Exports to Germany grew by 1,204 tons. The
board of directors will close the plant in Montijo in March 2026 and move 143 employees to
Setubal. The interest rate of the loan from Banco Atlantico is 5.85 %. The insurance covers
machines worth 3,400,000 euros.

Forecast. We expect a lower demand for wine stoppers and a higher demand for insulation panels and
flooring. Harvest in the Alentejo was 18 % below the average of ten years because of the drought.
The carbon footprint of a stopper is 1.8 grams. A competitor, Amorim, has a market share of 35 %.
Our share price target for an acquisition of Granulado Norte is 21.60 euros. The offer ends on
14.11.2025. Energy costs were 640,200 euros. The machine learning model for the quality of
stoppers sorts 4,800 stoppers an hour and saves the work of 12 people. Customers pay within 45
days. The software project SILVA is late by 6 weeks. Its budget of 250,000 euros is spent.
Contact: anogueira@sado.example, phone +351 21 555 01 93. The tax rate for 2026 will be 20 %.
Inflation was 2.3 % and the exchange rate 1.0842.
"""
INCIDENT = """
Incident 2025-1187, internal. At 03:14:22 UTC the Redis primary redis-7f9c4 on 10.42.7.19:6379
stopped to answer. Sentinel promoted redis-7f9c5 after 31 seconds. Celery workers of the queue
billing raised ConnectionError and TimeoutError. The Kubernetes node ip-10-42-7-19 had 97 % of its
memory in use. The deployment of version 4.18.3 at 02:58 had changed maxmemory-policy to
noeviction. PostgreSQL had 512 connections. Customer Halvorsen Shipping lost 1,943 messages. Root
cause: a dashboard in Grafana sent a KEYS command each 15 seconds. Ticket OPS-20417, owner Priya
Raghunathan. Python 3.11.7, Django 5.0.2, nginx 1.25.3. The error rate of the API rose to 12.5 %.
The backup of 02:00 had 48,211,004 keys. We use port 8443 for the admin console, user svc_backup.
Next steps: rate limits for the API, alerts for memory, a test of the failover each month,
documentation of the retry policy, and an upgrade to 7.2.4. Build
5f3a9c1e-77d2-4b8e-9c41-0c8f6f3f2a10 is blocked. Commit 9d1f0c2ab7e4.
"""
CONTRACT = """
Employment agreement between Nordlicht Analytics GmbH and Dr. Helene Brandt, born 17.05.1984. The
employee starts on 1 February 2026 as head of data science in Hamburg. The salary is 118,400 euros
a year and a bonus of up to 15 percent. The notice period is three months. The employee has 30
days of vacation. The working time is 38.5 hours a week. IBAN DE44 5001 0517 5407 3249 31. Tax
number 22/815/08152. The non-compete clause holds for 12 months after the end of the contract.
Confidential information includes the source code, the customer list, the algorithms for credit
scoring and the merger with Tallinn Data OU. The employee may work from home two days a week. The
company pays for health insurance and a pension plan. Disputes go to the labour court in Hamburg.
Diagnosis of the medical examination: mild asthma, no restriction of work. Emergency contact:
Jonas Brandt, 0171 5550142.
"""
_GIVEN = (
    "Anna Bruno Clara David Elena Felix Greta Hugo Ines Jakob Karla Leon Mira Nils Olga Paul"
).split()
_FAMILY = (
    "Abecassis Bergstrom Castelo Dreyer Eklund Ferreira Goncalves Hartmann Iversen Jankowski"
    " Kowalczyk Lindqvist Moreau Novak Oliveira Petrov"
).split()


def table(rows: int, seed: int) -> str:
    """Return a table of customers as CSV. A row has about 70 characters."""
    chance = random.Random(seed)
    lines = ["customer,name,city,revenue,orders,phone,last_order"]
    for row in range(rows):
        name = f"{chance.choice(_GIVEN)} {chance.choice(_FAMILY)}"
        city = chance.choice(("Lisbon", "Porto", "Hamburg", "Oslo", "Tallinn", "Graz"))
        revenue = chance.randrange(1_000, 900_000)
        phone = f"+351 {chance.randrange(210_000_000, 219_999_999)}"
        day = f"2025-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
        lines.append(f"C{row:05},{name},{city},{revenue},{chance.randrange(300)},{phone},{day}")
    return "\n".join(lines)


DOCUMENTS = {
    "a report": REPORT,
    "an incident": INCIDENT,
    "a contract": CONTRACT,
    "a table of 300 customers": table(300, 1),
}
_SEARCHES = """
cork price per ton
cork market europe 2025
average price of raw cork
wine stopper demand forecast
insulation panels cork vs foam
carbon footprint of cork stoppers
alentejo drought harvest
ecb interest rate october
euro dollar exchange rate history
inflation euro area
german import statistics of cork
cork flooring manufacturers
natural cork quality grades
how to calculate gross margin
plant closure notice period portugal
machine learning quality control
share price definition
energy prices industry portugal
corporate tax rate portugal
credit insurance for exports
redis sentinel failover
redis maxmemory policy noeviction
redis keys command slow
celery connection error redis
celery retry policy
kubernetes node memory pressure
postgresql max connections
grafana redis dashboard
django database connection timeout
nginx rate limit
python timeout error asyncio
how to test failover
api error rate alert
root cause analysis template
backup of redis keys
non-compete clause germany
notice period three months
labour court hamburg
employee vacation days by law
bonus taxation germany
health insurance for employees
pension plan contribution limits
working time directive
credit scoring algorithm
asthma work restriction
head of data science salary
work from home rules
merger control estonia
source code escrow
customer list trade secret
oslo population
graz weather
average revenue per customer
last order date excel formula
csv import phone numbers
population of hamburg 2024
public holidays portugal 2026
companies house filing
world bank gdp per capita
unemployment rate portugal 2025
""".strip().splitlines()
_PAGES = """
https://docs.python.org/3.11/library/asyncio-task.html#timeouts
https://docs.python.org/3/library/urllib.parse.html#urllib.parse.urlsplit
https://docs.python.org/3/whatsnew/3.12.html
https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/
https://redis.io/docs/latest/develop/reference/eviction/
https://redis.io/docs/latest/commands/keys/
https://docs.celeryq.dev/en/stable/userguide/tasks.html#automatic-retry-for-known-exceptions
https://docs.celeryq.dev/en/v5.4.0/getting-started/backends-and-brokers/redis.html
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/
https://www.postgresql.org/docs/16/runtime-config-connection.html
https://nginx.org/en/docs/http/ngx_http_limit_req_module.html
https://docs.djangoproject.com/en/5.0/ref/databases/#connection-management
https://grafana.com/docs/grafana/latest/dashboards/
https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/429
https://datatracker.ietf.org/doc/html/rfc9110#section-15.5.9
https://www.rfc-editor.org/rfc/rfc8259.txt
https://peps.python.org/pep-0484/
https://packages.example.org/project/celery/5.4.0/
https://packages.example.org/project/redis/5.0.8/#files
https://packages.example.org/project/django-redis/
https://packages.example.org/pypi/httpx/json
https://files.example.org/packages/source/r/redis/redis-5.0.8.tar.gz
https://www.npmjs.com/package/@types/node/v/20.11.5
https://registry.example.org/lodash/4.17.21
https://crates.io/crates/serde/1.0.203
https://docs.rs/tokio/1.38.0/tokio/time/fn.timeout.html
https://pkg.go.dev/golang.org/x/net@v0.26.0/http2
https://hub.docker.com/_/redis/tags?page=1&name=7.2
https://hub.docker.com/r/bitnami/postgresql/tags?page_size=100
https://github.com/redis/redis/issues/12345
https://github.com/celery/celery/pull/8796/files
https://github.com/python/cpython/blob/main/Lib/urllib/parse.py#L421-L455
https://github.com/django/django/compare/5.0.1...5.0.2
https://github.com/grafana/grafana/releases/tag/v11.1.0
https://gitlab.com/gitlab-org/gitlab/-/merge_requests/152345
https://stackoverflow.com/questions/53327826/what-is-the-best-way-to-retry-a-celery-task
https://stackoverflow.com/a/11227902
https://serverfault.com/questions/796985/redis-memory-usage-is-higher-than-maxmemory
https://en.wikipedia.org/wiki/Quercus_suber
https://en.wikipedia.org/wiki/Machine_learning
https://en.wikipedia.org/wiki/Set%C3%BAbal
https://en.wikipedia.org/wiki/Non-compete_clause#Germany
https://en.wikipedia.org/w/index.php?title=Cork_(material)&oldid=1248812345
https://en.wikipedia.org/w/index.php?title=Special:Search&search=stopper&ns0=1&fulltext=1
https://pt.wikipedia.org/wiki/Corti%C3%A7a
https://de.wikipedia.org/wiki/K%C3%BCndigungsfrist
https://ja.wikipedia.org/wiki/%E3%82%B3%E3%83%AB%E3%82%AF
https://fa.wikipedia.org/wiki/%DA%86%D9%88%D8%A8%E2%80%8C%D9%BE%D9%86%D8%A8%D9%87
https://www.wikidata.org/wiki/Q160091
https://www.ecb.europa.eu/stats/policy_and_exchange_rates/key_ecb_interest_rates/html/index.en.html
https://data.ecb.europa.eu/data/datasets/EXR/EXR.D.USD.EUR.SP00.A
https://ec.europa.eu/eurostat/databrowser/view/prc_hicp_manr/default/table?lang=en
https://ec.europa.eu/eurostat/api/dissemination/statistics/1.0/data/nama_10_gdp?geo=PT&time=2024&unit=CP_MEUR
https://api.worldbank.org/v2/country/PRT/indicator/NY.GDP.PCAP.CD?format=json&per_page=100
https://data.worldbank.org/indicator/SL.UEM.TOTL.ZS?locations=PT
https://www.imf.org/external/datamapper/NGDP_RPCH@WEO/PRT
https://fred.stlouisfed.org/series/DEXUSEU
https://www.gesetze-im-internet.de/bgb/__622.html
https://eur-lex.europa.eu/legal-content/EN/TXT/?uri=CELEX:32003L0088
https://www.irs.gov/pub/irs-pdf/p505.pdf
https://www.sec.gov/cgi-bin/browse-edgar?action=getcompany&CIK=0000320193&type=10-K&dateb=&owner=include&count=40
https://www.sec.gov/Archives/edgar/data/320193/000032019323000106/aapl-20230930.htm
https://arxiv.org/abs/2302.12173
https://arxiv.org/pdf/2406.13352v3
https://doi.org/10.1038/s41586-021-03819-2
https://pubmed.ncbi.nlm.nih.gov/31452104/
https://www.nature.com/articles/s41586-021-03819-2
https://www.ncbi.nlm.nih.gov/pmc/articles/PMC6520897/
https://www.bbc.com/news/articles/c4gl7e1e2x3o
https://www.reuters.com/markets/europe/ecb-cuts-rates-2025-06-05/
https://www.theguardian.com/business/2025/oct/14/inflation-uk-imf-forecast
https://www.ft.com/content/7c0b8f26-41f6-4f7e-9b8f-0d4f5c6e7a81
https://www.nytimes.com/2025/03/02/world/europe/portugal-election.html
https://news.ycombinator.com/item?id=41234567
https://www.youtube.com/watch?v=dQw4w9WgXcQ&t=125s
https://youtu.be/9bZkp7q19f0?si=Xk3aPq7Lr2mN8vTz
https://www.amazon.de/dp/B08N5WRWNW/ref=sr_1_3?keywords=cork+board&qid=1718362345&sr=8-3
https://www.ebay.com/itm/394857261034?hash=item5bf0a1c2ea:g:abcAAOSwX~dl
https://www.booking.com/hotel/pt/do-sado.html?checkin=2026-03-14&checkout=2026-03-16&group_adults=2
https://www.openstreetmap.org/#map=12/38.5244/-8.8882
https://www.google.com/maps/@38.7223,-9.1393,13z
https://api.open-meteo.com/v1/forecast?latitude=38.72&longitude=-9.14&hourly=temperature_2m
https://maps.example.org/tiles/14/7817/6301.png
https://fonts.gstatic.com/s/roboto/v30/KFOmCnqEu92Fr1Mu4mxKKTU1Kg.woff2
https://cdn.example.org/assets/main.8f3c2b1a.js
https://shop.example.org/products/cork-yoga-mat?variant=40123456789012&color=natural
https://jobs.example.org/search?q=data+science&location=Hamburg&radius=25&page=3
https://forum.example.org/t/redis-sentinel-failover-takes-too-long/18234/7
https://blog.example.org/2024/05/12/how-to-set-up-rate-limits-for-your-api/
https://status.example.org/incidents/01jx8c4w9t
https://example.org:8080/health
https://www.example.org/
https://www.example.org/en/products/flooring/natural-cork/technical-data-sheet.pdf
https://www.example.org/de/unternehmen/karriere/stellenangebote
https://www.example.org/report?year=2024&quarter=3&format=pdf
https://www.example.org/list?page=12&limit=50&sort=price&order=desc
https://www.example.org/list?offset=200&limit=100
https://www.example.org/image.jpg?w=640&h=480&fit=crop&auto=format&q=75
https://www.example.org/calendar?from=2025-10-01&to=2025-12-31
https://www.example.org/search?query=insulation&category=12&min_price=10&max_price=250
""".strip().splitlines()


def urls() -> dict[str, list[str]]:
    """Return the ordinary URLs by kind."""
    return {
        "searches": list(_searches()),
        "pages": _PAGES,
        "ids": list(_ids()),
        "tracking": list(_tracking()),
    }


def _searches() -> Iterator[str]:
    forms = (
        "https://en.wikipedia.org/w/index.php?search={}",
        "https://www.example.org/search?q={}&lang=en&page=2",
        "https://html.duckduckgo.com/html/?q={}",
    )
    for number, words in enumerate(_SEARCHES):
        yield forms[number % len(forms)].format(quote_plus(words))


def _ids() -> Iterator[str]:
    chance = random.Random(7)
    for _ in range(12):
        name = uuid.UUID(int=chance.getrandbits(128), version=4)
        yield f"https://api.example.org/v1/items/{name}"
        yield f"https://www.example.org/view?id={name}&rev={chance.randrange(40)}"
        yield f"https://www.example.org/article/{chance.randrange(10**7, 10**8)}"
        yield f"https://www.example.org/item?id={chance.randrange(10**10, 10**12)}"
        yield f"https://github.com/acme/tool/commit/{chance.getrandbits(40):010x}"
        yield f"https://pics.example.org/{chance.getrandbits(64):016x}/{chance.randrange(99)}.jpg"


def _tracking() -> Iterator[str]:
    chance = random.Random(8)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for number in range(10):
        click = "".join(chance.choices(letters, k=24))
        yield f"https://www.example.org/p/{number}?utm_source=newsletter&utm_medium=email&ref={click}"
        yield f"https://shop.example.org/?gclid=Cj0KCQjw{click}&campaign={chance.randrange(10**9)}"
        yield f"https://www.example.org/?session={chance.getrandbits(96):024x}&v={number}"


def hashes() -> list[str]:
    """Return ordinary URLs with a hash. The policy asks about each that no public text has."""
    urls: list[str] = []
    for number in range(10):
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        urls.append(f"https://github.com/acme/tool/commit/{digest[:40]}")
        urls.append(f"https://files.example.org/packages/{digest}/tool-1.{number}.whl")
    return urls


def asked(text: str, ordinary: list[str]) -> list[str]:
    """Return the URLs that need a person after a handoff has read a private text."""
    return [url for url in ordinary if url_carries_private_text(url, [text], ["Write the report."])]


if __name__ == "__main__":
    for name, document in {**DOCUMENTS, "a table of 1 MB": table(14_000, 2)}.items():
        for kind, ordinary in {**urls(), "hashes": hashes()}.items():
            print(f"{name}, {kind}: {len(asked(document, ordinary))} of {len(ordinary)}")
