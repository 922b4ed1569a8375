"""The system prompt of an agent, with its rules for the form of an answer."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import assert_never

from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import SystemPrompt
from handoff_queue.shared.types.specialist import SpecialistSpec


class AnswerForm(StrEnum):
    """The form in which an agent answers."""

    MARKDOWN = "markdown"
    """Markdown with notes at its end, see `shared.agent.markdown_answer`."""
    ENVELOPE = "envelope"
    """One JSON object, see `shared.agent.answer_envelope`."""
    OWN = "own"
    """The schema of a role, whose instructions contain the rules."""


ENVELOPE_RULES = """\
# How you answer

Your last message is one JSON object and nothing else. It has `status`, `output`, `confidence` (0.0 to 1.0), and `needs` or `problem` if they apply.
- `status` is ok, partial (`problem` names the gap and its reason), needs_input (`needs` asks for it) or failed (`problem` says why).
- `output` is the work itself, in the requested format; a string is Markdown. It is never a report about the work.
- A statement from another step's claim keeps its mark: [step.c1]."""  # noqa: E501 - lines of a text
CLAIM_RULES = """\
- `claims` lists the proof of each statement of fact: {"id": "c1", "sources": [{"source": "path, URL or tool:...", "quote": "A sentence."}]}. The statement in the output ends with its mark: [c1].
- A quote is a sentence, letter by letter. Shorten a sentence of more than 8 words to its first three and its last three: "Its first three ... last three words." A quote that is not in the source is discarded. A tool's result that begins with [source: tool:...] is a source of this name.
- Give a claim a `text` only if no sentence of the output states it."""  # noqa: E501 - lines of a text
"""Rules for specialists that prove their statements."""
VALUE_RULE = """\
- A claim that gives something a value also has `subject`, `attribute` and `value`, and `unit` and `date` if they apply: "Eiffel Tower", "height", "330", "m", "2022"."""  # noqa: E501 - lines of a text
"""A rule for claims that code compares with other claims."""

MARKDOWN_RULES = """\
# How you answer

Answer with the work itself in Markdown, never with a report about it."""
NOTE_RULES = """\
A statement of fact ends with a mark. Notes at the end prove it with a sentence of the source, letter by letter. Shorten a sentence of more than 8 words to its first three and its last three:
<notes>
[c1] path or URL: "A sentence."
[c2] "Its first three ... last three words."
</notes>"""  # noqa: E501 - lines of a text
"""Rules for specialists that prove their statements. Code finds the whole sentence. A note without
a source has the source of the note before.
"""
QUOTE_RULE = "- A quote that is not in its source is discarded."
"""A rule for agents with tools. An agent without tools sees its sources in the task."""
TOOL_SOURCE_RULE = """\
- The result of a tool that begins with [source: tool:...] is a source of this name."""
VALUE_NOTE_RULE = """\
- If a statement gives something a value, its note first names subject, attribute, value, unit and date: [c1] Eiffel Tower | height | 330 | m | 2022 | eiffel.md: "quote\""""  # noqa: E501 - lines of a text
"""A rule for claims that code compares with other claims."""
STATUS_RULE = """\
- Incomplete work begins its notes with `status: partial` or `failed` and `problem: the gap`, or `status: needs_input` and `needs: your question`."""  # noqa: E501 - lines of a text
STATUS_NOTES = """\
- Only if the work is not whole, it ends with notes. Other statuses: `needs_input` with `needs: your question`, `failed` with `problem`.
<notes>
status: partial
problem: the gap and its reason
</notes>"""  # noqa: E501 - lines of a text
"""The rule for specialists whose answers have no other notes."""
STEP_RULE = "- A statement from another step's claim keeps its mark: [step.c1]."
NO_SOURCES = frozenset("search_documents read_document web_search fetch_url memory now".split())
"""Tools of this project whose results are not sources."""


def choose_form(handoff: AgentHandoff) -> AnswerForm:
    """Return the form in which a specialist answers. An output with a schema needs JSON."""
    if handoff.expected_output_format == {"type": "string"}:
        return AnswerForm.MARKDOWN
    return AnswerForm.ENVELOPE


def build_system_prompt(
    head: str,
    form: AnswerForm,
    handoff: AgentHandoff,
    spec: SpecialistSpec,
    tools: Collection[str],
) -> SystemPrompt:
    """Return the system prompt of an agent: its instructions, and the rules for its answer.

    The rules about the values of claims are cached, too. `STEP_RULE` alone is too short for a
    cache mark.

    Args:
        head: the instructions and the common rules.
        form: form of the answer. The form of a role needs no rules.
        tools: names of the tools that the agent has.
    """
    common: list[str] = []
    handoff_rules: list[str] = []
    is_compared = handoff.compared is not False
    match form:
        case AnswerForm.MARKDOWN:
            common = _build_markdown_rules(spec, tools)
            if spec.has_claims and is_compared:
                handoff_rules.append(VALUE_NOTE_RULE)
            if handoff.context or is_compared:
                handoff_rules.append(STEP_RULE)
        case AnswerForm.ENVELOPE:
            common = _build_envelope_rules(spec)
            if spec.has_claims and is_compared:
                handoff_rules.append(VALUE_RULE)
        case AnswerForm.OWN:
            pass
        case _:
            assert_never(form)
    if common:
        head += "\n\n" + "\n".join(common)
    caches_handoff_rules = bool({VALUE_RULE, VALUE_NOTE_RULE}.intersection(handoff_rules))
    return SystemPrompt(head, "".join(f"\n{rule}" for rule in handoff_rules), caches_handoff_rules)


def _build_markdown_rules(spec: SpecialistSpec, tools: Collection[str]) -> list[str]:
    rules = [MARKDOWN_RULES]
    if spec.has_claims:
        rules[0] += f" {NOTE_RULES}"
        if tools:
            rules.append(QUOTE_RULE)
        if not NO_SOURCES.issuperset(tools):
            rules.append(TOOL_SOURCE_RULE)
        rules.append(STATUS_RULE)
    else:
        rules.append(STATUS_NOTES)
    return rules


def _build_envelope_rules(spec: SpecialistSpec) -> list[str]:
    if spec.has_claims:
        return [ENVELOPE_RULES, CLAIM_RULES]
    return [ENVELOPE_RULES]
