"""The offline model as replanner: one more step where something is missing and somebody else
can look for it, and no second one.
"""

from __future__ import annotations

from handoff_queue.shared.providers.offline.conversation import Conversation, Result
from handoff_queue.shared.providers.offline.role_detection import reply_to
from handoff_queue.supervisor.roles.replanner import Decision

SCHEMA = {
    "type": "object",
    "properties": {"decision": {"type": "string"}, "why": {"type": "string"}},
}
SPECIALISTS = [
    '{"name": "generalist", "description": "-", "tools": ["search_documents"], "waiting": 0}',
    '{"name": "researcher", "description": "-", "tools": ["search_documents"], "waiting": 0}',
    '{"name": "writer", "description": "-", "tools": [], "waiting": 0}',
]


def a_step(name: str, status: str, specialist: str = "researcher") -> str:
    return f'{{"step": "{name}", "specialist": "{specialist}", "task": "Research {name}.", "depends_on": [], "status": "{status}"}}'


def asked(*steps: str, result: str = "partial") -> Conversation:
    task = "\n".join(
        [
            "Results have come in.",
            "Specialists:",
            *SPECIALISTS,
            "Plan:",
            *steps,
            "",
            "Request:",
            "Compare.",
        ]
    )
    tools: dict[str, dict[str, str]] = {
        f"hand_off_to_{name}": {} for name in ("generalist", "researcher", "writer")
    }
    return Conversation(
        "", task, (Result("milvus", result, "Not found.", ()),), tools=tools, schema=SCHEMA
    )


def test_what_one_did_not_find_another_who_can_search_looks_for() -> None:
    block = reply_to(asked(a_step("milvus", "partial")))[0]

    assert (block["type"], block["name"]) == ("tool_use", "hand_off_to_generalist")
    assert (block["input"]["id"], block["input"]["depends_on"]) == ("milvus_further", [])


def test_it_is_looked_for_once() -> None:
    block = reply_to(
        asked(a_step("milvus", "partial"), a_step("milvus_further", "partial", "generalist"))
    )[0]

    assert Decision.FINALIZE in block["text"]


def test_where_nothing_is_missing_the_plan_goes_on() -> None:
    block = reply_to(
        asked(a_step("milvus", "ok"), a_step("write", "not begun", "writer"), result="ok")
    )[0]

    assert Decision.GO_ON in block["text"]
