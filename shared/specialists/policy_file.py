"""Reader of the policy file, which says which origins may reach which tools."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator

from handoff_queue.shared.agent.tool_policy import (
    DEFAULT_RULES,
    CallVerdict,
    Exemption,
    NetworkRule,
    PolicyRules,
    Rule,
)
from handoff_queue.shared.text.yaml_reader import YamlFault, find_line, parse_tree
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.message import (
    NO_SUCH_FIELD,
    Message,
    iterate_problems,
    with_hint,
)
from handoff_queue.shared.types.origins import PRIVATE, UNTRUSTED

MAX_BYTES = 50_000
"""Most bytes of a policy file."""
_KIND = r"user|document|web|model|tool|mcp"
_ORIGIN = rf"^({_KIND}|(tool|mcp) [a-zA-Z0-9_-]{{1,64}})$"
_SEEN = rf"^(private|untrusted|{_KIND}|(tool|mcp) [a-zA-Z0-9_-]{{1,64}})$"
OriginPattern = Annotated[str, StringConstraints(pattern=_ORIGIN)]
SeenPattern = Annotated[str, StringConstraints(pattern=_SEEN)]
HostPattern = Annotated[
    str, StringConstraints(pattern=r"^(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?$")
]
ToolPattern = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_*-]{1,80}$")]
_HINTS = {
    "tools": " (sends, acts, or the name of a tool, with * for any characters)",
    "seen": " (private, untrusted, user, document, web, tool, mcp, model, `tool NAME`, `mcp NAME`)",
    "network": " (none or all)",
    "hosts": " (hosts such as example.org, or *.example.org for each subdomain)",
    "private": " (user, document, web, tool, mcp, model, `tool NAME` or `mcp NAME`)",
    "untrusted": " (user, document, web, tool, mcp, model, `tool NAME` or `mcp NAME`)",
}


class RuleFields(Message):
    """A rule, as the file has it."""

    tools: Annotated[tuple[ToolPattern, ...], Field(min_length=1, max_length=100)]
    seen: Annotated[tuple[SeenPattern, ...], Field(max_length=20)] = ()
    unless: Annotated[tuple[Exemption, ...], Field(max_length=3)] = ()
    verdict: CallVerdict


class NetworkFields(Message):
    """The networks of some tools of users, as the file has them."""

    tools: Annotated[tuple[ToolPattern, ...], Field(min_length=1, max_length=100)]
    network: Literal["all", "none"] | None = None
    hosts: Annotated[tuple[HostPattern, ...], Field(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _validate_network(self) -> Self:
        if (self.network is None) == (self.hosts is None):
            raise ValueError("must have `network: none`, `network: all` or `hosts`")
        return self

    @property
    def only_hosts(self) -> tuple[str, ...] | None:
        """The only hosts that a call may reach. None: all networks."""
        if self.network == "all":
            return None
        return self.hosts or ()


_DEFAULT = tuple(
    RuleFields(tools=rule.tools, seen=rule.seen, unless=rule.unless, verdict=rule.verdict)
    for rule in DEFAULT_RULES
)


class PolicyFields(Message):
    """The fields of a policy file."""

    rules: Annotated[tuple[RuleFields, ...], Field(max_length=100)] = _DEFAULT
    networks: Annotated[tuple[NetworkFields, ...], Field(max_length=100)] = ()
    private: Annotated[tuple[OriginPattern, ...], Field(max_length=100)] = tuple(sorted(PRIVATE))
    untrusted: Annotated[tuple[OriginPattern, ...], Field(max_length=100)] = tuple(
        sorted(UNTRUSTED)
    )


@lru_cache(maxsize=8)
def read_rules(file: Path | None) -> PolicyRules:
    """Return the rules of a policy file, or the default rules without a file. A process reads a
    file once.

    Raises:
        UserError: the file has a fault. The message names the file, the line, the field and the
            fault in one line.
    """
    if file is None:
        return PolicyRules()
    root = _read_tree(file)
    try:
        fields = PolicyFields.model_validate_json(json.dumps(_build_values(file, root)))
    except ValidationError as error:
        place, problem = _find_first_problem(error)
        hint = ""
        for name in place:
            hint = _HINTS.get(name, hint)
        where = f"{file}:{find_line(root, place)}: {'.'.join(place) or 'rules'}"
        raise UserError(f"{where}: {with_hint(problem, hint)}") from error
    rules: list[Rule] = []
    for rule in fields.rules:
        rules.append(Rule(rule.tools, rule.seen, rule.unless, rule.verdict))
    networks = tuple(NetworkRule(network.tools, network.only_hosts) for network in fields.networks)
    return PolicyRules(
        tuple(rules), frozenset(fields.private), frozenset(fields.untrusted), networks
    )


def _find_first_problem(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return the place and the text of the first unknown field, or else of the first problem. An
    unknown field may be the reason why another one is missing.
    """
    problems = list(iterate_problems(error, PolicyFields, shows_values=True))
    for place, problem in problems:
        if problem.startswith(NO_SUCH_FIELD):
            return place, problem
    return problems[0]


def _read_tree(file: Path) -> yaml.Node:
    """Return the tree of a YAML file with fields.

    Raises:
        UserError: the file cannot be read, is not plain YAML, or has no fields.
    """
    try:
        if not file.is_file():  # a pipe would never end
            raise UserError(f"{file}: no such file of a policy: correct HANDOFF_POLICY_FILE")
        if file.stat().st_size > MAX_BYTES:
            raise UserError(f"{file}: larger than {MAX_BYTES:,} bytes: shorten the policy")
        root = parse_tree(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}): name a readable file"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text: save it as UTF-8") from error
    except YamlFault as error:
        raise UserError(f"{file}:{error.line}: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise UserError(
            f"{file}:1: must have the field `rules` or `networks`: write `rules:` and below it"
            " `- tools: [...]`, one rule each"
        )
    return root


def _build_values(file: Path, root: yaml.Node) -> Any:
    """Return the values of a tree.

    Raises:
        UserError: a value is neither a text, a number, a list nor a mapping.
    """
    try:
        values = yaml.constructor.SafeConstructor().construct_document(root)
        json.dumps(values)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise UserError(f"{file}: has a value that is not text: put it into quotes") from error
    return values
