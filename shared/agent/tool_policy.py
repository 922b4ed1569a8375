"""The policy of tools: which origins may reach which tools. Pure.

Each call of a handoff is decided before it runs. The decision depends on the declarations of the
tool and the origins of the texts that the handoff has seen. `CallGuard` finds these texts in the
conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from handoff_queue.shared.agent.conversation import Conversation
from handoff_queue.shared.agent.seen_texts import (
    Seen,
    SeenText,
    are_of_user,
    find_argument_origins,
    get_host,
    is_allowed_host,
    is_url_of_user,
    url_carries_private_text,
    value_carries_private_text,
)
from handoff_queue.shared.agent.tool import ANY_HOST, Tool
from handoff_queue.shared.types.checkpoints import (
    Checkpoint,
    ModelReplied,
    ToolObserved,
    UserPrompted,
)
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.model import Block
from handoff_queue.shared.types.origins import (
    CODE_EXECUTION,
    MODEL,
    PRIVATE,
    UNTRUSTED,
    USER,
    WEB,
    Origin,
    build_tool_origin,
    get_origins,
    has_any,
    is_private,
    is_untrusted,
    union,
)


class CallVerdict(StrEnum):
    """Verdict on one call of a tool."""

    ALLOW = "allow"
    ASK = "ask"
    """A person must approve this very call."""
    REFUSE = "refuse"


class Exemption(StrEnum):
    """Condition under which a rule does not hold."""

    URL_OF_USER = "url_of_user"
    """The URL is word for word in the user's request."""
    ALLOWED_HOST = "allowed_host"
    """The specialist's `hosts` have the host, and the call carries no private text."""
    ARGUMENTS_OF_USER = "arguments_of_user"
    """There are arguments, and each value is in the user's request."""


SENDS = "sends"
"""In a rule: the tools that send data out."""
ACTS = "acts"
"""In a rule: the tools that act."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the policy."""

    tools: tuple[str, ...]
    """`sends`, `acts`, and names of tools, with `*` for any characters."""
    seen: tuple[str, ...] = ()
    """`private`, `untrusted`, origins and kinds of origins. The rule holds if the handoff has seen
    all named origins.
    """
    unless: tuple[Exemption, ...] = ()
    """Conditions under which the rule does not hold."""
    verdict: CallVerdict = CallVerdict.ASK

    def is_about(self, tool: Tool) -> bool:
        """Return whether the rule names the tool."""
        return any(_pattern_matches(pattern, tool) for pattern in self.tools)


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """The operator's limit of the networks that tools of users reach."""

    tools: tuple[str, ...]
    """Names of tools, with `*` for any characters."""
    hosts: tuple[str, ...] | None
    """The only hosts. None: all networks."""


DEFAULT_RULES = (
    Rule((SENDS,), ("private", "untrusted"), (Exemption.URL_OF_USER, Exemption.ALLOWED_HOST)),
    Rule((ACTS,), ("untrusted",), (Exemption.ARGUMENTS_OF_USER,)),
)


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The content of a policy file. The first rule that holds decides; without one, the call is
    allowed.
    """

    rules: tuple[Rule, ...] = DEFAULT_RULES
    private: frozenset[str] = PRIVATE
    """Origins and kinds of origins that are private."""
    untrusted: frozenset[str] = UNTRUSTED
    """Origins and kinds of origins that are untrusted."""
    networks: tuple[NetworkRule, ...] = ()
    """The first rule that names a tool holds."""

    def get_hosts(self, tool: str) -> tuple[str, ...] | None:
        """Return the only hosts that a user's tool may reach. None: all networks."""
        for rule in self.networks:
            if any(fnmatchcase(tool, pattern) for pattern in rule.tools):
                return rule.hosts
        return None


@dataclass(frozen=True, slots=True)
class CallDecision:
    """The decision on one call."""

    verdict: CallVerdict
    reason: str = ""
    """Reason of a verdict other than `allow`, in words of our code."""
    argument_origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    """Origins of the texts that contain each argument. Empty for a tool that neither sends nor
    acts, unless each of its calls needs an approval.
    """


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """The policy for the calls of one specialist."""

    rules: PolicyRules = field(default_factory=PolicyRules)
    hosts: tuple[str, ...] = ()
    """Hosts that the specialist's tools may reach. Empty: all public hosts."""
    asks: frozenset[str] = frozenset()
    """Tools of which each call needs a person's approval."""

    def may_restrict(self, tool: Tool) -> bool:
        """Return whether a rule is about the tool, or each of its calls needs an approval."""
        return tool.name in self.asks or any(rule.is_about(tool) for rule in self.rules.rules)

    def decide(self, tool: Tool, arguments: Mapping[str, Any], seen: Seen) -> CallDecision:
        """Return the decision on a call.

        Args:
            arguments: arguments of the call.
            seen: texts that the handoff has seen before the call.
        """
        origins: dict[str, tuple[Origin, ...]] = {}
        if tool.sends or tool.acts or tool.name in self.asks:
            origins = find_argument_origins(arguments, seen)
        host = self._find_host(tool, arguments)
        if host is not None and self.hosts and not is_allowed_host(host, self.hosts):
            reason = f"{host[:100]} is not in the list of hosts of this specialist"
            return CallDecision(CallVerdict.REFUSE, reason, origins)
        if tool.name in self.asks:
            reason = f"each call of {tool.name} needs an approval"
            return CallDecision(CallVerdict.ASK, reason, origins)
        for rule in self.rules.rules:
            if self._holds(rule, tool, arguments, seen):
                if rule.verdict is CallVerdict.ALLOW:
                    break
                return CallDecision(rule.verdict, self._explain_rule(rule, tool, seen), origins)
        return CallDecision(CallVerdict.ALLOW, "", origins)

    def allows_tools_after(
        self, tools: Iterable[Tool], before: tuple[Origin, ...], more: tuple[Origin, ...]
    ) -> bool:
        """Return whether a handoff may still use each tool after it has seen more texts.

        Args:
            before: origins of the texts that the handoff has seen.
            more: origins of the further texts.
        """
        after = union(before, more)
        for tool in tools:
            if not (self.may_restrict(tool) or tool.sends or tool.acts):
                continue
            verdict_before = self.decide(tool, {}, Seen(before)).verdict
            verdict_after = self.decide(tool, {}, Seen(after)).verdict
            if verdict_before is CallVerdict.ALLOW and verdict_after is not CallVerdict.ALLOW:
                return False
        return True

    def _find_host(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the host of the URL that the model chose, or None."""
        if tool.url_argument is None:
            return None
        return get_host(str(arguments.get(tool.url_argument)))

    def _holds(self, rule: Rule, tool: Tool, arguments: Mapping[str, Any], seen: Seen) -> bool:
        """Return whether a rule is about the tool, the handoff has seen all that it names, and no
        exemption applies.
        """
        if not rule.is_about(tool):
            return False
        if not all(self._has_seen(origin, seen) for origin in rule.seen):
            return False
        return not any(
            self._is_exempt(exemption, tool, arguments, seen) for exemption in rule.unless
        )

    def _has_seen(self, origin: str, seen: Seen) -> bool:
        match origin:
            case "private":
                return is_private(seen.origins, self.rules.private)
            case "untrusted":
                return is_untrusted(seen.origins, self.rules.untrusted)
            case _:
                return has_any(seen.origins, (origin,))

    def _is_exempt(
        self, exemption: Exemption, tool: Tool, arguments: Mapping[str, Any], seen: Seen
    ) -> bool:
        """Return whether a condition of a rule's `unless` applies to a call."""
        url = None
        if tool.url_argument is not None:
            url = str(arguments.get(tool.url_argument)).strip()
        match exemption:
            case Exemption.ARGUMENTS_OF_USER:
                return are_of_user(arguments, seen)
            case Exemption.URL_OF_USER:
                return url is not None and is_url_of_user(url, seen)
            case Exemption.ALLOWED_HOST:
                return self._is_safe_at_host(url, tool, arguments, seen)

    def _is_safe_at_host(
        self, url: str | None, tool: Tool, arguments: Mapping[str, Any], seen: Seen
    ) -> bool:
        """Return whether all hosts of the call are allowed, and no argument is private."""
        private, public = self._split(seen)
        if url is not None:
            host = get_host(url)
            is_allowed = host is not None and is_allowed_host(host, self.hosts)
            return is_allowed and not url_carries_private_text(url, private, public)
        if ANY_HOST in tool.sends:
            return False
        if not all(is_allowed_host(host, self.hosts) for host in tool.sends):
            return False
        return not value_carries_private_text(dict(arguments), private, public)

    def _split(self, seen: Seen) -> tuple[list[str], list[str]]:
        """Return the private texts, and the public ones. A text that only a model made, or that
        a model made from private texts, is not public.
        """
        private: list[str] = []
        public: list[str] = []
        for text in seen.texts:
            if is_private(text.origins, self.rules.private):
                private.append(text.text)
            elif MODEL not in text.origins:
                public.append(text.text)
        return private, public

    def _explain_rule(self, rule: Rule, tool: Tool, seen: Seen) -> str:
        sources = ", ".join(_select_named_origins(seen.origins)) or "nothing"
        does = "is restricted"
        if SENDS in rule.tools and tool.sends:
            does = "sends data out"
        elif ACTS in rule.tools and tool.acts:
            does = "acts on the world"
        return f"{tool.name} {does}, and this handoff has seen {sources}"


def describe_refusal(decision: CallDecision) -> str:
    """Return the result of a call that was not run, as the model sees it."""
    if decision.verdict is CallVerdict.ASK:
        return f"not run: {decision.reason}; a person must approve it. Go on without this call"
    return f"not run: {decision.reason}. Go on without this call"


def _pattern_matches(pattern: str, tool: Tool) -> bool:
    match pattern:
        case "sends":
            return bool(tool.sends)
        case "acts":
            return tool.acts
        case _:
            return fnmatchcase(tool.name, pattern)


def _select_named_origins(origins: Sequence[Origin]) -> list[str]:
    """Return the origins that a reason names: all except `user` and `model`."""
    return [origin for origin in origins if origin not in ("user", MODEL)]


_SEARCH_RESULT = "web_search_tool_result"
"""Type of the block with the results of a server-side search."""
_RESULT_OF_CODE = "code_execution_tool_result"
"""End of the types of the blocks with a result of the provider's code execution."""


@dataclass(frozen=True, slots=True)
class CallGuard:
    """Decides the calls of one handoff."""

    handoff: AgentHandoff
    policy: ToolPolicy
    words_of_user: Callable[[], str]
    """Returns the request of the user. It is read from the store at the first use."""

    def decide(
        self, tool: Tool, arguments: dict[str, Any], conversation: Conversation
    ) -> CallDecision:
        """Return the decision on a call after this conversation."""
        if not tool.sends and not tool.acts and not self.policy.may_restrict(tool):
            return CallDecision(CallVerdict.ALLOW)
        return self.policy.decide(tool, arguments, self.collect_seen_texts(conversation))

    def is_offered(self, tool: Tool, conversation: Conversation) -> bool:
        """Return whether the model may know of a tool. The provider runs a server-side tool
        within the model call, so the call itself cannot be checked.
        """
        if tool.server_param is None:
            return True
        return self.decide(tool, {}, conversation).verdict is CallVerdict.ALLOW

    def collect_origins(self, conversation: Conversation) -> tuple[Origin, ...]:
        """Return the origins of all that the handoff has seen."""
        groups = [text.origins for text in map(_get_seen_text, conversation.checkpoints) if text]
        return union(get_origins(self.handoff.origins), *groups)

    def collect_seen_texts(self, conversation: Conversation) -> Seen:
        """Return all texts that the handoff has seen, and the words of the user."""
        opening = "\n".join(block.get("text", "") for block in conversation.opening["content"])
        texts = [SeenText(opening, get_origins(self.handoff.origins))]
        words = [self.words_of_user()]
        words += [item.text for item in self.handoff.feedback if item.author == "user"]
        texts += [SeenText(text, (USER,)) for text in words if text]
        texts += [text for text in map(_get_seen_text, conversation.checkpoints) if text]
        return Seen().add(*texts)


def _get_seen_text(checkpoint: Checkpoint) -> SeenText | None:
    """Return the text of others that a checkpoint has, or None."""
    match checkpoint:
        case ToolObserved():
            return SeenText(checkpoint.text, get_origins(checkpoint.origins))
        case UserPrompted():
            return SeenText(checkpoint.text, (USER,))
        case ModelReplied():
            return _get_text_seen_at_provider(checkpoint)
    return None


def _get_text_seen_at_provider(reply: ModelReplied) -> SeenText | None:
    """Return the results of tools that the provider has run, or None."""
    results: list[Block] = []
    origins: set[Origin] = set()
    for block in reply.content:
        kind = str(block.get("type"))
        if kind == _SEARCH_RESULT:
            origins.add(WEB)
        elif kind.endswith(_RESULT_OF_CODE):
            origins.add(build_tool_origin(CODE_EXECUTION))
        else:
            continue
        results.append(block)
    if not results:
        return None
    return SeenText(json.dumps(results, ensure_ascii=False), union(origins))
