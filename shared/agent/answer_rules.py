"""The rules of the system prompt for the form of an answer."""

from __future__ import annotations

from enum import StrEnum

from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.specialist import SpecialistSpec


class AnswerForm(StrEnum):
    """The form in which an agent answers."""

    MARKDOWN = "markdown"
    """Markdown with notes at its end, see `shared.agent.answer_notes`."""
    ENVELOPE = "envelope"
    """One JSON object, see `shared.agent.answer_envelope`."""
    OWN = "own"
    """The schema of a role, whose instructions contain the rules."""


ENVELOPE_RULES = """\
# How you answer

Your last message is one JSON object and nothing else, with `status`, `output`, `confidence` (0.0 to 1.0), and `needs` or `problem` if they apply.
- `status` is ok, partial (`problem` names the gap and its reason), needs_input (`needs` asks for it) or failed (`problem` says why).
- `output` is the work itself, in the requested format; a string is Markdown. It is never a report about the work.
- A statement from another step's claim keeps its mark: [step.c1]."""  # noqa: E501 - lines of a text
CLAIM_RULES = """\
- `claims` lists the proof of each statement of fact: {"id": "c1", "sources": [{"source": "path, URL or tool:...", "quote": "..."}]}. The statement in the output ends with its mark: [c1].
- Copy a quote letter by letter, one or two sentences. A quote that is not in the source is discarded. A tool's result that begins with [source: tool:...] is a source of this name.
- Give a claim a `text` only if no sentence of the output states it."""  # noqa: E501 - lines of a text
"""Rules for specialists that prove their statements."""
VALUE_RULE = """\
- A claim that gives something a value also has `subject`, `attribute` and `value`, and `unit` and `date` if they apply: "Eiffel Tower", "height", "330", "m", "2022"."""  # noqa: E501 - lines of a text
"""A rule for claims that code compares with other claims."""

MARKDOWN_RULES = """\
# How you answer

Your last message is the work itself in Markdown, never a report about the work.
- Is the work not whole? End with lines such as these. Other statuses are needs_input, with a line `needs:` that asks for it, and failed.
<notes>
status: partial
problem: the gap and its reason
</notes>
- A statement from another step's claim keeps its mark: [step.c1]."""  # noqa: E501 - lines of a text
NOTE_RULES = """\
- A statement of fact ends with a mark, such as [c1]. The notes at the end have its proof, one line for each source:
<notes>
[c1] path, URL or tool:...: "quote"
</notes>
- Copy a quote letter by letter, one or two sentences. A quote that is not in the source is discarded. A tool's result that begins with [source: tool:...] is a source of this name."""  # noqa: E501 - lines of a text
"""Rules for specialists that prove their statements."""
VALUE_NOTE_RULE = """\
- If a statement gives something a value, its line names subject, attribute, value, unit and date first: [c1] Eiffel Tower | height | 330 | m | 2022 | eiffel.md: "quote\""""  # noqa: E501 - lines of a text
"""A rule for claims that code compares with other claims."""


def form_of(handoff: AgentHandoff) -> AnswerForm:
    """Return the form in which a specialist answers. An output with a schema needs JSON."""
    if handoff.expected_output_format == {"type": "string"}:
        return AnswerForm.MARKDOWN
    return AnswerForm.ENVELOPE


def answer_rules(form: AnswerForm, handoff: AgentHandoff, spec: SpecialistSpec) -> str:
    """Return the rules that an agent needs, or '' for a form of its own."""
    if form is AnswerForm.OWN:
        return ""
    rules, claim_rules, value_rule = ENVELOPE_RULES, CLAIM_RULES, VALUE_RULE
    if form is AnswerForm.MARKDOWN:
        rules, claim_rules, value_rule = MARKDOWN_RULES, NOTE_RULES, VALUE_NOTE_RULE
    parts = [rules]
    if spec.has_claims:
        parts.append(claim_rules)
        if handoff.compared is not False:
            parts.append(value_rule)
    return "\n".join(parts)
