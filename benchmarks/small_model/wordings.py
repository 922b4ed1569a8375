"""`python -m benchmarks.small_model.wordings`: which wording of the rules for an answer gets more
valid first answers from the small model.

Each wording answers the same questions with the same seeds. Each question has its document in the
prompt, and no tools.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass

from benchmarks.arguments import parse_positive
from benchmarks.small_model.__main__ import EXAMPLES
from benchmarks.small_model.messages_api import build_prompt
from benchmarks.small_model.model_process import SmallModel, small_model
from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.markdown_answer import read_noted_answer
from handoff_queue.shared.agent.opening_message import LoadedPayloads, build_opening
from handoff_queue.shared.agent.prompt_documents import choose_shown
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.system_prompt import NOTE_RULES, AnswerForm
from handoff_queue.shared.specialists.specialist_files import load_specialists
from handoff_queue.shared.types.handoff import AgentHandoff, Document, Manifest
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.testing.replies import Json
from handoff_queue.workers.specialists import BUILT_IN

STEP = StepId("answer")
MAX_TOKENS = 250
QUESTIONS = {
    "qdrant.md": "What is Qdrant written in?",
    "faiss.md": "Under which licence is FAISS released?",
    "hnsw.md": "Who described HNSW, and in which year?",
}
_SECOND_NOTE = '\n[c2] "Its first three ... last three words."'
_TEMPLATE = f'[c1] path or URL: "A sentence."{_SECOND_NOTE}'
_EXAMPLE = (
    "The station has three pumps. [c1]\n<notes>\n"
    '[c1] elm_pumps.md: "Three pumps of 45 kW each were installed."'
)
WORDINGS = {
    "now": NOTE_RULES,
    "with one note": NOTE_RULES.replace(_SECOND_NOTE, ""),
    "with an example": NOTE_RULES.replace(f"<notes>\n{_TEMPLATE}", _EXAMPLE),
}
"""Wordings of `NOTE_RULES`."""
ENVELOPE = "JSON envelope"
"""The form before the notes. Its schema is enforced."""
HEAD = "| wording | replies | with a quote | accepted | with a checked quote | abridged |"


@dataclass(frozen=True, slots=True)
class _Question:
    system: str
    message: dict[str, object]
    answer_format: EnvelopeFormat


def _build_question(path: str, task: str, form: AnswerForm) -> _Question:
    text = (EXAMPLES / "vector-databases" / path).read_text()
    digest = compute_digest(text)
    document = Document(path=path, digest=digest, media_type="text/markdown", chars=len(text))
    manifest = Manifest(documents=(document,))
    handoff = AgentHandoff(
        handoff_id=build_handoff_id(STEP, 1),
        job_id=JobId("j-0123456789ab"),
        step_id=STEP,
        attempt=1,
        assigned_to="generalist",
        specialist=digest,
        task_description=task,
        limits=HandoffLimits(),
        compared=False,
        origins=("model", "user"),
    )
    spec = load_specialists(BUILT_IN)["generalist"]
    shown_documents = choose_shown(manifest, task, lambda _: text)
    payloads = LoadedPayloads(manifest=manifest)
    opening = build_opening(handoff, spec, payloads, form=form, tools=(), documents=shown_documents)
    sources = Sources(lambda _: text, manifest, load_seen_texts=lambda: [text])
    answer_format = EnvelopeFormat(STEP, {"type": "string"}, sources, are_compared=False, form=form)
    return _Question(opening.system.text, opening.message, answer_format)


def _count_answers(model: SmallModel, wording: str, replies: int) -> Counter[str]:
    counts = Counter[str]()
    form = AnswerForm.ENVELOPE if wording == ENVELOPE else AnswerForm.MARKDOWN
    for path, task in QUESTIONS.items():
        question = _build_question(path, task, form)
        rules = WORDINGS.get(wording, NOTE_RULES)
        system = question.system.replace(NOTE_RULES, rules)
        request: Json = {"system": system, "messages": [question.message]}
        rule: Json = {}
        if question.answer_format.schema is not None:
            rule["json_schema"] = question.answer_format.schema
            request["output_config"] = {"format": {"schema": question.answer_format.schema}}
        prompt = build_prompt(request)
        for seed in range(replies):
            pieces = model.complete(prompt, MAX_TOKENS, seed, **rule)
            text = "".join(piece.text for piece in pieces)
            counts["replies"] += 1
            noted_answer = read_noted_answer(text)
            counts["proofs"] += bool(noted_answer.claims) or '"quote"' in text
            counts["abridged"] += " ... " in text
            try:
                answer = question.answer_format.read(text, last_try=False)
            except InvalidAnswer:
                continue
            counts["accepted"] += 1
            counts["checked"] += any(claim.sources for claim in answer.claims)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--replies", type=parse_positive, default=10, help="replies to each question"
    )
    parser.add_argument("--temperature", type=float, default=0.7)
    names = [*WORDINGS, ENVELOPE]
    parser.add_argument("--wordings", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    print(f"{HEAD}\n|---|---|---|---|---|---|", flush=True)
    with small_model(options.temperature) as model:
        for name in options.wordings:
            counts = _count_answers(model, name, options.replies)
            keys = ("replies", "proofs", "accepted", "checked", "abridged")
            print(f"| {name} | {' | '.join(str(counts[key]) for key in keys)} |", flush=True)


if __name__ == "__main__":
    main()
