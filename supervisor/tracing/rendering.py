"""Parts of the trace page: sections as plain sentences, and the answer and its sources as
HTML.

Models, tools and documents wrote the texts. Only this module turns their texts into markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from handoff_queue.supervisor.client.approvals import change_in_words
from handoff_queue.supervisor.client.report import JobResult

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

_HIGHEST = 5
"""The highest score of a criterion."""


def report_sections(report: JobResult) -> dict[str, Any]:
    """Return the sections below the answer, by heading: sentences, or rows of a table."""
    plan = report.plan or {}
    notes = list(report.notes)
    if plan.get("why"):
        notes.insert(0, plan["why"])
    return {
        "gaps": list(map(_gap, report.gaps)),
        "verdicts": list(chain.from_iterable(map(_verdict, report.verdicts))),
        "conflicts": list(map(_conflict, report.conflicts)),
        "gates": list(_gates(report.gates)) if report.gates else [],
        "changes of the plan": [f"{change_in_words(entry)}." for entry in report.patches],
        "approvals": list(map(_approval, report.approvals)),
        "route": _route(report.route) if report.route else [],
        "plan": list(map(_step, plan.get("steps", ()))),
        "notes": notes,
    }


def _gap(gap: Mapping[str, Any]) -> str:
    cost = gap["likely_usd"]
    price = ""
    if cost:
        price = f" It would cost about ${cost:.4f}."
    return f"{gap['step']} ({gap['specialist']}): {gap['why']}.{price}"


def _verdict(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the decision of a round, then its revisions, open points and scores."""
    round_ = f"Round {verdict['round']}"
    match verdict["verdict"]:
        case "PASS":
            yield f"{round_}: the reviewer passed the results."
        case "REVISE":
            yield f"{round_}: the reviewer sent work back."
        case _:
            yield f"{round_}: there is no verdict ({verdict.get('problem') or 'no reason is known'})."
    if verdict.get("checked"):
        yield f"{round_}: {verdict['checked']}."
    for entry in verdict["revisions"]:
        yield f"{round_}, sent back: {entry['step']}: {entry['problem']}"
    for point in verdict["open_points"]:
        yield f"{round_}, open: {point}"
    for entry in verdict["scores"]:
        of = ""
        if entry["step"]:
            of = f" of {entry['step']}"
        why = "."
        if entry["why"]:
            why = f": {entry['why']}"
        yield f"{round_}, {entry['criterion']}{of}: {entry['score']} of {_HIGHEST}{why}"


def _conflict(conflict: Mapping[str, Any]) -> str:
    quoted: list[str] = []
    for claim in conflict["claims"]:
        quoted.append(f"\u201c{claim['text']}\u201d ({claim['id']})")
    claims = "; ".join(quoted)
    stands = ", ".join(conflict["stands"])
    end = "it is disputed"
    if stands:
        end = f"{stands} stands"
    return f"Not all of these can be right: {claims}. Decision: {end}. {conflict['why']}".strip()


def _gates(gates: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each check by code, then one for each check by the fact-checker."""
    for number, look in enumerate(gates.get("looks", ()), start=1):
        vetoes = "; ".join(look["vetoes"])
        if vetoes:
            yield f"Check {number}: {vetoes}"
        else:
            yield f"Check {number}: the answer passed."
    for number, check in enumerate(gates.get("fact_checks", ()), start=1):
        wrong: list[str] = []
        for statement in check["wrong"]:
            wrong.append(f"\u201c{statement['statement']}\u201d: {statement['why']}")
        end = check.get("problem") or "no statement was found to be wrong"
        yield f"Fact check {number}: {'; '.join(wrong) or end}"


def _approval(approval: Mapping[str, Any]) -> str:
    decision = approval["decision"] or "waits for a person"
    by = ""
    if approval.get("by"):
        by = f" by {approval['by']}"
    note = ""
    if approval.get("note"):
        note = f": {approval['note']}"
    why = ""
    if approval.get("why"):
        why = f" ({approval['why']})"
    return f"Approval of the {approval['what']}{why}: {decision}{by}{note}"


def _route(route: Mapping[str, Any]) -> list[str]:
    who = "A team"
    if route["specialist"]:
        who = f"The specialist {route['specialist']}"
    sentence = f"{who} got the job"
    if why := route["problem"] or route["why"]:
        sentence += f": {why}"
    return [sentence]


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": step["id"],
        "title": step.get("title") or "",
        "specialist": step["specialist"],
        "after": ", ".join(step.get("depends_on", ())),
        "task": step["task"],
    }


_NUMBER = re.compile(r"\[(\d{1,6})\]")
"""A citation in an answer, such as `[3]`."""
_WEB = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_REL = "noopener noreferrer nofollow"
"""The attribute `rel` of links out of the page."""
_MOST_TITLE_CHARS = 300


def answer_html(
    answer: JsonValue,
    citations: Sequence[Mapping[str, Any]],
    prefix: str,
    *,
    is_form: bool = False,
) -> str:
    """Return an answer as HTML.

    `answer`: Markdown, or the JSON value of an answer with a schema.
    `citations`: as in `JobResult.citations`. `[n]` becomes a link to the source `PREFIX-source-n`.
    `prefix`: makes the ids of one answer unique in its page.
    `is_form`: True if a text is a JSON value of an answer with a schema, and not Markdown.
    """
    if is_form or not isinstance(answer, str):
        return f"<pre>{escape(json.dumps(answer, ensure_ascii=False, indent=2))}</pre>"
    quotes: dict[Any, str] = {}
    for citation in citations:
        quotes[citation["n"]] = f"{citation['source']}: \u201c{citation['quote']}\u201d"
    return str(_markdown().render(answer, {"prefix": prefix, "quotes": quotes}))


def sources_html(citations: Sequence[Mapping[str, Any]], prefix: str) -> str:
    """Return the numbered sources of an answer as an HTML list: the document, the quote and
    its statement.
    """
    items = "".join(_source(citation, prefix) for citation in citations)
    return f'<ol class="sources">{items}</ol>'


def source_id(prefix: str, number: int) -> str:
    """Return the id of the HTML element of a source."""
    return f"{prefix}-source-{number}"


def _source(citation: Mapping[str, Any], prefix: str) -> str:
    name = escape(citation["source"])
    if _WEB.match(citation["source"]):
        name = f'<a href="{name}" rel="{_REL}">{name}</a>'
    step = ""
    if citation["step"]:
        step = f' <span class="soft">found by {escape(citation["step"])}</span>'
    return (
        f'<li id="{escape(source_id(prefix, citation["n"]))}" value="{citation["n"]}">'
        f"<strong>{name}</strong>{step}<blockquote>{escape(citation['quote'])}</blockquote></li>"
    )


@cache
def _markdown() -> MarkdownIt:
    """Return the Markdown renderer. Its import takes time, so it happens at the first use."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["image", "reference", "html_block", "html_inline"])
    markdown.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]
    markdown.core.ruler.push("citations", _link_citations)
    markdown.core.ruler.push("attributes", _safe_attributes)
    return markdown


def _link_citations(state: StateCore) -> None:
    """Make a link of each `[n]` that is the number of a source, outside of code and of links."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_linked(block.children, state.env["prefix"], state.env["quotes"]))


def _linked(tokens: Sequence[Token], prefix: str, quotes: Mapping[int, str]) -> Iterator[Token]:
    """Yield the tokens. A text outside of links is split at its citations."""
    depth = 0
    for token in tokens:
        if token.type in ("link_open", "link_close"):
            depth += token.nesting
        if token.type != "text" or depth or not _NUMBER.search(token.content):
            yield token
        else:
            yield from _split(token, prefix, quotes)


def _split(token: Token, prefix: str, quotes: Mapping[int, str]) -> Iterator[Token]:
    """Yield the tokens of a text, with a link for each citation."""
    from markdown_it.token import Token

    end = 0
    for match in _NUMBER.finditer(token.content):
        number = int(match[1])
        if number not in quotes:
            continue
        attributes: dict[str, str | int | float] = {
            "class": "cite",
            "href": f"#{source_id(prefix, number)}",
            "title": " ".join(quotes[number].split())[:_MOST_TITLE_CHARS],
        }
        yield Token("text", "", 0, content=token.content[end : match.start()])
        yield Token("link_open", "a", 1, attrs=attributes)
        yield Token("text", "", 0, content=match[0])
        yield Token("link_close", "a", -1)
        end = match.end()
    yield Token("text", "", 0, content=token.content[end:])


def _safe_attributes(state: StateCore) -> None:
    """Give links out of the page a `rel`, and replace the inline style of table cells by a
    class.

    The content security policy of the page refuses inline styles.
    """
    for block in state.tokens:
        for token in (block, *(block.children or ())):
            if style := token.attrs.pop("style", None):
                token.attrs["class"] = str(style).rpartition(":")[2]
            if token.type == "link_open" and not str(token.attrs["href"]).startswith("#"):
                token.attrs["rel"] = _REL
