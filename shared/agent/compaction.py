"""The compaction of a conversation that is too long although old results were cleared. One call
asks the model for a summary, which replaces all earlier turns.

Code keeps the parts that a summary may lose: quotes with their sources, and the names of results
and documents. The request for the summary, its reply and the checkpoint `ContextCompacted` are
checkpoints. So a resumed handoff sends the same requests and pays for no reply twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from handoff_queue.shared.agent.conversation import Conversation, get_final_text
from handoff_queue.shared.agent.opening_message import READ_RESULT
from handoff_queue.shared.agent.prices import USUAL_WINDOW, encode_json
from handoff_queue.shared.agent.summary_messages import extract_summary, find_provider_block
from handoff_queue.shared.agent.token_estimates import BYTES_PER_TOKEN
from handoff_queue.shared.agent.tool import ToolContext, ToolFailed
from handoff_queue.shared.agent.tool_result_clearing import MIN_FREED
from handoff_queue.shared.types.checkpoints import CitedQuote, ContextCompacted
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.specialist import ContextRules

MAX_REQUESTS = 2
"""Requests for one summary. If no reply has a text, the quotes and names alone go on."""
MAX_OPENED = 200
"""Documents that later requests name as opened."""
_CALL_NAME = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++#[0-9]+")

MIN_PASSAGE_CHARS = 12
"""Characters of the shortest passage in quotation marks that counts as a quote."""
MAX_PASSAGE_CHARS = 2_000
"""Characters of the longest such passage."""
_PAIR = re.compile(
    r'"source"\s*+:\s*+("(?:[^"\\]|\\.)*+")\s*+,\s*+"quote"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)
_PASSAGE_LENGTH = f"{{{MIN_PASSAGE_CHARS},{MAX_PASSAGE_CHARS}}}"
_PASSAGE = re.compile(
    rf'"([^"\n]{_PASSAGE_LENGTH})"|“([^“”\n]{_PASSAGE_LENGTH})”|«([^«»\n]{_PASSAGE_LENGTH})»'
)


MAX_USUAL_COMPACTION = 200_000
"""Input tokens at which a conversation is compacted if the file of the specialist has no rule. Each
turn pays for the whole request again: at least 5 % of the input price, from the cache. A summary
pays for itself after about four turns. Requests that grow evenly to this length have 100,000
tokens on average, the budget of a turn (`lifecycle/handoffs.py`).
"""


def compute_compaction_limit(context: ContextRules | None, longest_prompt: int) -> int:
    """Return the length of a request, in input tokens, at which a conversation is compacted.

    Args:
        context: rules of the specialist's file, if any.
        longest_prompt: see `Prices.get_longest_prompt`.
    """
    rules = context or ContextRules()
    usual = min(longest_prompt * 9 // 10, MAX_USUAL_COMPACTION)
    return rules.compact_at or max(usual, rules.clear_tools_at or 0)


USUAL_COMPACTION = compute_compaction_limit(None, USUAL_WINDOW)
"""Limit for a model whose context window is not known."""


def frees_enough(conversation: Conversation, limit: int) -> bool:
    """Return whether a summary would free at least the limit divided by `MIN_FREED`. The
    opening message, earlier summaries and messages of users stay.
    """
    return _count_tokens_after_opening(conversation) >= max(1, limit // MIN_FREED)


def _count_tokens_after_opening(conversation: Conversation) -> int:
    return len(encode_json(tuple(conversation.messages[1:]))) // BYTES_PER_TOKEN


def get_summary_text(content: Sequence[Block]) -> str:
    """Return the text of a reply to a request for a summary, which may be in a block of the
    provider.
    """
    block = find_provider_block(content)
    return get_final_text(content) if block is None else str(block["content"])


def make_compaction(conversation: Conversation, context: ToolContext) -> ContextCompacted:
    """Return the checkpoint that puts the summary of the last reply in place of all turns.

    Args:
        context: proves the quotes, and knows the documents.

    Raises:
        StoreError: a source cannot be read from the store, or stored.
    """
    summary = ""
    by_provider = False
    if conversation.last_reply is not None:
        content = conversation.last_reply.content
        by_provider = find_provider_block(content) is not None
        summary = extract_summary(get_summary_text(content))
    opened_documents = _find_opened_documents(conversation, context)
    cleared_ids = conversation.cleared
    visible_ids = [
        item.tool_use_id for item in conversation.observed if item.tool_use_id not in cleared_ids
    ]
    return ContextCompacted(
        summary=summary,
        quotes=_collect_quotes(conversation, opened_documents, context),
        results=name_ranges(_list_readable_results(conversation)),
        documents=tuple(opened_documents)[-MAX_OPENED:],
        tool_use_ids=tuple(visible_ids),
        tokens=_count_tokens_after_opening(conversation),
        by_provider=by_provider or None,
    )


def _list_readable_results(conversation: Conversation) -> list[str]:
    """Return the names of the results that are worth another look, oldest first. No later request
    shows them, also if they are short.
    """
    names = conversation.call_names
    result_names: list[str] = []
    for observed in conversation.observed:
        name = names.get(observed.tool_use_id, "")
        is_readable = bool(name) and not observed.is_error
        if is_readable and not name.startswith(f"{READ_RESULT}#"):
            result_names.append(name)
    return result_names


def _find_opened_documents(conversation: Conversation, context: ToolContext) -> dict[str, str]:
    """Return the digests of the documents and pages that results of tools name as the source of
    a text, by their paths.
    """
    opened_documents: dict[str, str] = {}
    for document in (*context.manifest.documents, *context.load_fetched_pages()):
        quoted_path = json.dumps(document.path, ensure_ascii=False)
        if any(quoted_path in observed.text for observed in conversation.observed):
            opened_documents.setdefault(document.path, document.digest)
    return opened_documents


def _collect_quotes(
    conversation: Conversation, opened_documents: Mapping[str, str], context: ToolContext
) -> tuple[CitedQuote, ...]:
    """Return all quotes so far, each once: those of the last compaction, and those of the later
    replies that are in their sources. A quote has the characters of its source.
    """
    candidates: dict[CitedQuote, None] = {}
    for text in _iterate_texts(conversation):
        candidates |= dict.fromkeys(find_json_quotes(text))
        candidates |= dict.fromkeys(_find_passages(text, conversation, opened_documents, context))
    last = conversation.compaction
    quotes = list(last.quotes if last else ())
    for candidate in candidates:
        with suppress(ToolFailed):
            citation = context.prove(candidate.source, candidate.quote)
            quotes.append(CitedQuote(source=citation.source, quote=citation.quote))
    return tuple(dict.fromkeys(quotes))


def _iterate_texts(conversation: Conversation) -> Iterator[str]:
    """Yield the texts of the replies since the last compaction. A reply in the form of an answer
    is followed by its output.
    """
    for reply in conversation.shown_replies:
        text = "".join(
            str(block.get("text", "")) for block in reply.content if block.get("type") == "text"
        )
        if find_provider_block(reply.content) is not None:
            text = get_summary_text(reply.content)
        yield text
        output = extract_summary(text)
        if output != text.strip():
            yield output


def _find_passages(
    text: str, conversation: Conversation, opened_documents: Mapping[str, str], context: ToolContext
) -> list[CitedQuote]:
    """Return the passages in quotation marks that are in a source that the same text names."""
    passages = find_quoted_passages(text)
    if not passages:
        return []
    sources = {
        **_find_named_results(text, conversation),
        **_find_named_documents(text, opened_documents, context),
    }
    quotes: list[CitedQuote] = []
    for passage in passages:
        for name, content in sources.items():
            if passage in content:
                quotes.append(CitedQuote(source=name, quote=passage))
    return quotes


def _find_named_results(text: str, conversation: Conversation) -> dict[str, str]:
    """Return the citable results that a text names, by their sources."""
    named_calls = set(find_call_names(text))
    names = conversation.call_names
    texts: dict[str, str] = {}
    for observed in conversation.observed:
        if observed.source and names.get(observed.tool_use_id) in named_calls:
            texts[observed.source] = observed.text
    return texts


def _find_named_documents(
    text: str, opened_documents: Mapping[str, str], context: ToolContext
) -> dict[str, str]:
    """Return the texts of the opened documents that a text names, by their paths."""
    texts: dict[str, str] = {}
    for path, digest in opened_documents.items():
        if path not in text:
            continue
        try:
            texts[path] = context.text_of(digest)
        except ToolFailed:
            continue
    return texts


def find_json_quotes(text: str) -> list[CitedQuote]:
    """Return the quotes that a text of the model gives in JSON with their sources."""
    quotes: list[CitedQuote] = []
    for source, quote in _PAIR.findall(text):
        try:
            quotes.append(CitedQuote(source=json.loads(source), quote=json.loads(quote)))
        except ValueError:  # a control character, or an escape that JSON does not have
            continue
    return quotes


def find_call_names(text: str) -> list[str]:
    """Return the names of calls in a text, such as `look#1`."""
    return _CALL_NAME.findall(text)


def find_quoted_passages(text: str) -> list[str]:
    """Return the passages of a text that are in quotation marks."""
    return ["".join(groups) for groups in _PASSAGE.findall(text)]


def name_ranges(names: Iterable[str]) -> tuple[str, ...]:
    """Return names such as `look#1`, with `look#1 to look#3` for numbers in a row."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        tool, _, number = name.rpartition("#")
        numbers.setdefault(tool, []).append(int(number))
    ranges: list[str] = []
    for tool, of_tool in numbers.items():
        for first, last in _find_runs(sorted(of_tool)):
            ranges.append(f"{tool}#{first}")
            if last > first:
                ranges[-1] += f" to {tool}#{last}"
    return tuple(ranges)


def _find_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of numbers without a gap."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
