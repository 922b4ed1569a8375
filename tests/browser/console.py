"""Pages of the console as a user sees them, and checks of their accessibility."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.browser.axe import axe_violations
from tests.browser.driver import Browser
from tests.waiting import wait_until

PROBLEMS = """
const problems = [];
const named = (one) => one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim()
  || one.getAttribute('aria-labelledby');
const isShown = (one) => one.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
for (const one of document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a, summary'))
  if (isShown(one) && !named(one)) problems.push(`no name: ${one.outerHTML.slice(0, 120)}`);
for (const [selector, count] of [['main', 1], ['h1:not(.answer h1)', 1], ['header', 1], ['html[lang]', 1]])
  if (document.querySelectorAll(selector).length !== count) problems.push(`not ${count}: ${selector}`);
const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) problems.push(`twice: ${id}`);
for (const th of document.querySelectorAll('th:not([scope], .answer th)')) problems.push(`no scope: ${th.textContent}`);
const rgba = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
const back = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (texts.nextNode()) {
  const one = texts.currentNode.parentElement;
  if (!texts.currentNode.textContent.trim() || seen.has(one) || !isShown(one) || one.disabled) continue;
  if (one.closest('svg, script, .skip')) continue;
  seen.add(one);
  const [a, b] = [light(rgba(getComputedStyle(one).color)), light(back(one))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(1)}: ${one.outerHTML.slice(0, 120)}`);
}
if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than the screen: ${document.documentElement.scrollWidth}`);
return problems;
"""  # noqa: E501 - lines of a script
SIZES = ((390, 844), (1280, 900), (3840, 2160))
"""A phone, a laptop and a 4K screen, in CSS pixels."""


def accessibility_problems(window: Browser) -> list[str]:
    """Return the problems of the open page: names of controls, landmarks, contrast and width."""
    problems: list[str] = window.run(PROBLEMS)
    return problems


def problems_everywhere(window: Browser) -> list[str]:
    """Return the problems of the open page at each size, in dark and in light, with the rules of
    axe-core.
    """
    problems: list[str] = []
    for scheme in ("dark", "light"):
        window.prefer(scheme)
        for violation in axe_violations(window):
            problems.append(f"{scheme}, axe: {violation}")
        for width, height in SIZES:
            window.resize(width, height)
            for problem in accessibility_problems(window):
                problems.append(f"{scheme}, {width}: {problem}")
    window.resize(*SIZES[1])
    return problems


def painted_after_ms(window: Browser) -> float:
    """Return the milliseconds from the start of the navigation to the first contentful paint."""

    def paint() -> Any:
        return window.run(
            "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        )

    wait_until(lambda: paint() is not None, expected="a paint")
    return float(paint())


@dataclass(frozen=True)
class JobTable:
    """The page with the table of jobs."""

    window: Browser
    url: str

    def open(self, query: str = "") -> JobTable:
        self.window.visit(f"{self.url}/?{query}")
        self.window.run("window.confirm = () => true; return null")
        return self

    def jobs(self) -> list[str]:
        """Return the ids of the rows, in their order."""
        ids: list[str] = self.window.run(
            "return [...document.querySelectorAll('#jobs tbody tr')].map((row) => row.id)"
        )
        return ids

    def status(self, job_id: str) -> str:
        return self.window.text(f"#{job_id} .pill")

    def count(self, status: str) -> str:
        return self.window.text(f"[data-count={status}]")

    def count_requests(self) -> None:
        """Note the requests of the page from now on."""
        self.window.run(
            "window.requests = []; const send = window.fetch;"
            "window.fetch = (...all) => { window.requests.push(String(all[0]));"
            " return send(...all); }; return null"
        )

    def requests(self, path: str) -> int:
        """Return the number of noted requests whose URL begins with the path."""
        urls: list[str] = self.window.run("return window.requests")
        return sum(url.startswith(path) for url in urls)

    def choose(self, job_id: str) -> None:
        self.window.click(f"#{job_id} .choose")

    def act(self, action: str) -> None:
        self.window.click(f"[data-action={action}]")

    def progress(self) -> str:
        return self.window.text("#progress span")


@dataclass(frozen=True)
class JobPage:
    """The page of one job."""

    window: Browser
    url: str
    job_id: str

    def open(self) -> JobPage:
        self.window.visit(f"{self.url}/jobs/{self.job_id}")
        return self

    def status(self) -> str:
        return self.window.text("#live .pill")

    def boxes(self) -> int:
        """Return the number of boxes of the graph."""
        return self.window.count("#graph svg, #graph details") and int(
            self.window.run("return document.querySelectorAll('#graph svg g').length")
        )

    def planned(self) -> list[str]:
        """Return the names and states of the boxes of steps without a handoff."""
        names: list[str] = self.window.run(
            "return [...document.querySelectorAll('#graph [data-step]')].map("
            "(one) => one.getAttribute('aria-label'))"
        )
        return names

    def rows(self) -> int:
        """Return the number of rows of the timeline, also folded rows."""
        return int(
            self.window.run("return document.querySelectorAll('#timeline .row:not(.group)').length")
        )

    def critical(self) -> list[str]:
        """Return the handoffs whose rows of the timeline are on the critical path."""
        names: list[str] = self.window.run(
            "return [...document.querySelectorAll('#timeline .row.critical:not(.group)')].filter("
            "(row) => row.querySelector('button').ariaLabel.includes('on the critical path')).map("
            "(row) => row.id.split('/').at(-1))"
        )
        return names

    def nodes(self) -> dict[str, dict[str, str]]:
        """Return the cells of each row of the table of the handoffs by the name of the column."""
        rows: list[dict[str, str]] = self.window.run(
            "const heads = [...document.querySelectorAll('#nodes th')].map((one) => one.innerText);"
            "return [...document.querySelectorAll('#nodes tbody tr')].map((row) =>"
            " Object.fromEntries(heads.map((head, n) => [head, row.cells[n].innerText])))"
        )
        return {row["handoff"]: row for row in rows}

    def open_handoff(self, handoff_id: str) -> None:
        self.window.click(f'[id$="/{handoff_id}"] button')

    def citations(self) -> int:
        """Return the number of links to documents in the text of the answer."""
        return self.window.count(".answer .cite")

    def open_citation(self) -> None:
        """Open the document of the first citation of the answer."""
        self.window.click(".answer .cite")

    def press_in_graph(self, handoff_id: str, key: str) -> None:
        """Press a key while a box of the graph has the focus."""
        self.window.type(f'#graph [data-handoff="{handoff_id}"]', key)

    def focused(self) -> str:
        """Return the id of the row of the timeline that has the focus."""
        return str(
            self.window.run("return document.activeElement.closest('#timeline .row')?.id ?? ''")
        )

    def detail(self, handoff_id: str) -> str:
        """Return the text below an opened handoff, or '' as long as it loads."""
        return str(
            self.window.run(
                f"return document.querySelector('[id$=\"/{handoff_id}\"] .detail')?.innerText ?? ''"
            )
        )


@dataclass(frozen=True)
class MoneyPage:
    """The page of the spending."""

    window: Browser
    url: str

    def open(self, query: str = "") -> MoneyPage:
        self.window.visit(f"{self.url}/money?{query}")
        return self

    def spent(self) -> str:
        return self.window.text(".facts dd")

    def choose_tenant(self, name: str) -> None:
        self.window.type("input[name=tenant]", name)
        self.window.click("main button")

    def bars(self) -> list[float]:
        """Return the value of the bar of each day, the newest first."""
        values: list[float] = self.window.run(
            "return [...document.querySelectorAll('#by-1 + .scroll meter')].map((one) => one.value)"
        )
        return values


@dataclass(frozen=True)
class SchedulesPage:
    """The page of the schedules."""

    window: Browser
    url: str

    def open(self) -> SchedulesPage:
        self.window.visit(f"{self.url}/schedules")
        return self

    def row(self, name: str, tenant: str = "default") -> str:
        """Return the text of the row of a schedule; '' if there is none."""
        element = f"document.getElementById('schedule-{tenant}-{name}')"
        return str(self.window.run(f"return {element}?.innerText ?? ''"))

    def act(self, action: str, name: str) -> None:
        self.window.click(f'form[action="/schedules/{name}/{action}"] button')

    def add(self, **texts: str) -> None:
        """Fill the form for a new schedule, and send it."""
        self.window.click('a[href="/schedules/new"]')
        wait_until(lambda: self.window.count("#cron") == 1, expected="the form")
        self.correct(**texts)

    def correct(self, **texts: str) -> None:
        """Replace texts of the form, and send it again."""
        for name, text in texts.items():
            self.window.run(f"document.getElementById({name!r}).value = ''; return null")
            self.window.type(f"#{name}", text)
        self.window.click("main button.main")

    def refusal(self) -> str:
        """Return the text of the refusal; '' as long as there is none."""
        return str(self.window.run("return document.getElementById('problems')?.innerText ?? ''"))

    def remove(self, name: str, tenant: str = "default") -> None:
        self.window.click(f"#schedule-{tenant}-{name} summary")
        self.act("remove", name)


@dataclass(frozen=True)
class EvaluationsPage:
    """The page of the evaluations."""

    window: Browser
    url: str

    def open(self) -> EvaluationsPage:
        self.window.visit(f"{self.url}/evaluations")
        return self

    def sets(self) -> list[str]:
        names: list[str] = self.window.run(
            "return [...document.querySelectorAll('h2')].map((one) => one.textContent)"
        )
        return names

    def changes(self) -> list[str]:
        """Return the texts of the column Change, the newest run first."""
        texts: list[str] = self.window.run(
            "return [...document.querySelectorAll('.evaluations tbody tr')].map((row) =>"
            " row.cells[7].innerText)"
        )
        return texts


@dataclass(frozen=True)
class FleetPage:
    """The page of the fleet."""

    window: Browser
    url: str

    def open(self) -> FleetPage:
        self.window.visit(f"{self.url}/fleet")
        return self

    def overflow_px(self) -> int:
        """Return the width of the part of the table of agents that a user must scroll to."""
        hidden: int = self.window.run(
            "const area = document.querySelector('#fleet-agents').parentElement;"
            " return area.scrollWidth - area.clientWidth"
        )
        return hidden

    def paused_handoffs(self) -> list[str]:
        """Return the names of the paused handoffs."""
        names: list[str] = self.window.run(
            "return [...document.querySelectorAll('#paused-handoffs a')]"
            ".map((one) => one.textContent)"
        )
        return names


@dataclass(frozen=True)
class InboxPage:
    """The page of the jobs that wait for a person."""

    window: Browser
    url: str

    def open(self) -> InboxPage:
        self.window.visit(f"{self.url}/inbox")
        return self

    def jobs(self) -> list[str]:
        ids: list[str] = self.window.run(
            "return [...document.querySelectorAll('#inbox tbody tr')].map((row) => row.id)"
        )
        return ids

    def decide(self, job_id: str) -> QuestionPage:
        """Open the question of a job."""
        self.window.click(f"#{job_id} td:last-child a")
        return QuestionPage(self.window, job_id)

    def decided(self) -> str:
        """Return the line about the last decision; '' if there is none."""
        return str(
            self.window.run("return document.querySelector('[role=status]')?.innerText ?? ''")
        )


@dataclass(frozen=True)
class QuestionPage:
    """The page of the question of one job."""

    window: Browser
    job_id: str

    def text(self, field: str) -> str:
        """Return the text of an editor: `plan`, `arguments` or `note`."""
        return str(self.window.run(f"return document.getElementById({field!r}).value"))

    def write(self, field: str, text: str) -> None:
        """Replace the text of an editor."""
        self.window.run(f"document.getElementById({field!r}).value = ''; return null")
        self.window.type(f"#{field}", text)

    def press(self, decision: str) -> None:
        """Press the button of a decision: `approve` or `reject`."""
        self.window.click(f"button[value={decision}]")

    def problems(self) -> list[str]:
        """Return the lines of the refusal; none as long as there is no refusal."""
        lines: list[str] = self.window.run(
            "return [...document.querySelectorAll('#problems li')].map((one) => one.textContent)"
        )
        return lines


@dataclass(frozen=True)
class DeadLettersPage:
    """The page of the dead letters."""

    window: Browser
    url: str

    def open(self) -> DeadLettersPage:
        self.window.visit(f"{self.url}/dead")
        return self

    def letters(self) -> list[str]:
        """Return the ids of the letters, the newest first."""
        ids: list[str] = self.window.run(
            "return [...document.querySelectorAll('article')].map((one) => one.id.slice(7))"
        )
        return ids

    def act(self, action: str, letter_id: str) -> None:
        self.window.click(f'form[action="/dead/{letter_id}/{action}"] button')
