"""The agent loop asks the policy before each call, and keeps the origins of all seen texts."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.agent.tool import ANY_HOST, Tool, ToolFailed, ToolOutput
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.testing import Reply, tool_call_reply
from handoff_queue.workers.tools.code_execution import SERVER_TYPE, code_execution_tool
from tests.doubles.agent_runs import Run, answer_reply
from tests.doubles.handoffs import a_handoff
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.scripted_model import replies_in_order

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def reading(text: str = "48713", **fields: Any) -> Tool:
    declared = {"origins": ("document",), **fields}
    return Tool("read_document", "Reads.", SCHEMA, lambda *_: text, **declared)


def sending(sent: list[str]) -> Tool:
    def run(arguments: dict[str, Any], _context: object) -> str:
        sent.append(arguments["q"])
        return "sent"

    return Tool("send", "Sends.", SCHEMA, run, sends=(ANY_HOST,), reads="public")


def searching() -> Tool:
    return Tool(
        "web_search",
        "Searches.",
        SCHEMA,
        None,
        {"type": "web_search_20250305", "name": "web_search"},
        sends=(ANY_HOST,),
    )


def a_run(*replies: Reply, tools: tuple[Tool, ...], **fields: Any) -> Run:
    return Run(replies_in_order(*replies, answer_reply()), tools=tools, **fields)


def observed(run: Run) -> list[ToolObserved]:
    checkpoints = run.checkpoints.earlier_checkpoints()
    return [item for item in checkpoints if isinstance(item, ToolObserved)]


READ = tool_call_reply(("read_document", {"q": "a"}))
SEND = tool_call_reply(("send", {"q": "b"}))


def test_a_call_before_the_document_runs_and_a_call_after_it_does_not() -> None:
    sent: list[str] = []
    run = a_run(SEND, READ, SEND, tools=(reading(), sending(sent)))
    result = run.go()

    assert sent == ["b"]
    assert [item.origins for item in observed(run)] == [("web",), ("document",), ()]
    assert observed(run)[2].text.startswith("not run: send sends data out")
    assert result.origins == ("document", "model", "user", "web")


def test_calls_of_the_same_reply_were_written_before_the_document_was_read() -> None:
    sent: list[str] = []
    both = tool_call_reply(("read_document", {"q": "a"}), ("send", {"q": "b"}))
    a_run(both, tools=(reading(), sending(sent))).go()

    assert sent == ["b"]


def test_a_resumed_handoff_knows_its_earlier_origins() -> None:
    sent: list[str] = []
    tools = (reading(), sending(sent))
    first = a_run(READ, tools=tools)
    first.go()
    checkpoints = MemoryCheckpoints()
    checkpoints.checkpoint(*first.checkpoints.earlier_checkpoints()[:2])
    resumed = Run(
        lambda call: SEND if len(call.messages) == 3 else answer_reply(),
        tools=tools,
        checkpoints=checkpoints.again(),
    )
    result = resumed.go()

    assert sent == []
    assert result.origins == ("document", "model", "user")


def test_a_result_without_origins_counts_as_a_document() -> None:
    sent: list[str] = []
    run = a_run(SEND, tools=(sending(sent),), handoff=a_handoff(origins=None))
    run.go()

    assert sent == []


def test_a_failed_search_in_documents_shows_no_document() -> None:
    def fail(*_: object) -> str:
        raise ToolFailed("no document a")

    sent: list[str] = []
    tool = Tool("read_document", "Reads.", SCHEMA, fail, origins=("document",))
    a_run(READ, SEND, tools=(tool, sending(sent))).go()

    assert sent == ["b"]


def test_the_error_of_a_user_tool_has_the_origin_of_the_tool() -> None:
    def fail(*_: object) -> str:
        raise ToolFailed("GET http://evil.example")

    run = a_run(tool_call_reply(("crm", {"q": "a"})), tools=(Tool("crm", "Reads.", SCHEMA, fail),))

    assert run.go().origins == ("model", "tool crm", "user")


def test_a_tool_can_name_the_origins_of_one_result() -> None:
    tool = reading()
    page = Tool(
        tool.name,
        tool.description,
        SCHEMA,
        lambda *_: ToolOutput("a page", origins=("web",)),
        origins=("document",),
    )

    assert a_run(READ, tools=(page,)).go().origins == ("model", "user", "web")


def test_a_search_of_the_provider_is_not_offered_after_private_data() -> None:
    run = a_run(READ, tools=(reading(), searching()))
    run.go()

    offered = [{tool["name"] for tool in call.tools} for call in run.calls]
    assert offered == [{"read_document", "web_search"}, {"read_document"}]


def test_a_result_of_code_at_the_provider_is_private_and_untrusted() -> None:
    call = {"type": "server_tool_use", "id": "c", "name": "bash_code_execution", "input": {}}
    output = {"type": "bash_code_execution_result", "stdout": "48713", "return_code": 0}
    result = {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "c",
        "content": output,
    }
    code = Reply(blocks=(call, result), stop_reason="pause_turn")
    sent: list[str] = []
    run = a_run(code, SEND, tools=(code_execution_tool(), sending(sent)))

    assert run.go().origins == ("model", "tool code_execution", "user")
    assert sent == []
    assert run.calls[0].tools[0] == {"type": SERVER_TYPE, "name": "code_execution"}
