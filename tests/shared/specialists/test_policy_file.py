"""The file with the policy of tools."""

from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool_policy import CallVerdict, PolicyRules
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists.policy_file import read_rules
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.doctor import examine
from handoff_queue.supervisor.cli.doctor_processes import CheckLevel
from handoff_queue.workers.assembly import make_workers_app


def written(folder: Path, text: str) -> Path:
    file = folder / "policy.yaml"
    file.write_text(text)
    return file


def test_without_a_file_the_default_holds() -> None:
    assert read_rules(None) == PolicyRules()


def test_a_file_replaces_the_rules(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "private: [document, tool crm]\n"
        "rules:\n"
        "  - tools: [fetch_url, crm__*]\n"
        "    seen: [private, web]\n"
        "    unless: [url_of_user]\n"
        "    verdict: refuse\n",
    )

    rules = read_rules(file)

    (rule,) = rules.rules
    assert (rule.tools, rule.seen) == (("fetch_url", "crm__*"), ("private", "web"))
    assert rule.verdict is CallVerdict.REFUSE
    assert rules.private == {"document", "tool crm"}
    assert rules.untrusted == PolicyRules().untrusted


def test_a_file_limits_the_networks_of_tools_and_keeps_the_default_rules(tmp_path: Path) -> None:
    rules = read_rules(
        written(
            tmp_path,
            "networks:\n"
            "  - {tools: [rates], hosts: ['*.rates.example']}\n"
            "  - {tools: [free], network: all}\n"
            "  - {tools: ['*'], network: none}\n",
        )
    )

    assert rules.rules == PolicyRules().rules
    assert rules.get_hosts("rates") == ("*.rates.example",)
    assert rules.get_hosts("free") is None
    assert rules.get_hosts("other") == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("rules: [", "policy.yaml:1: is not YAML"),
        ("", "policy.yaml:1: must have the field `rules`"),
        ("networks: [{tools: [rates]}]", "networks.0: must have `network: none`"),
        ("networks: [{tools: [rates], network: none, hosts: [a.b]}]", "networks.0: must have"),
        ("networks: [{tools: [rates], network: some}]", "networks.0.network: "),
        ("networks: [{tools: [rates], hosts: []}]", "networks.0.hosts: "),
        (
            "networks: [{tools: [rates], hosts: ['https://a.b']}]",
            "networks.0.hosts.0: must have another form (hosts such",
        ),
        ("rules: 3", "policy.yaml:1: rules: must be a list"),
        (
            "private: []\nrules:\n  - nope",
            "policy.yaml:3: rules.0: must hold fields, not 'nope': use tools, seen, unless,"
            " verdict",
        ),
        ("networks: [all]", "networks.0: must hold fields, not 'all': use tools, network, hosts"),
        ("[rules]", "`rules` or `networks`: write `rules:` and below it `- tools: [...]`"),
        ("rules: [{tools: [sends]}]", "rules.0.verdict: is missing: add it"),
        ("rules: [{tools: [sends], verdict: no}]", "rules.0.verdict: "),
        ("rules: [{tools: [sends], verdict: maybe}]", "must be 'allow', 'ask' or 'refuse'"),
        ("rules: [{tools: [], verdict: ask}]", "rules.0.tools: "),
        ("rules: [{tools: [sends], seen: [secret], verdict: ask}]", "rules.0.seen.0: "),
        ("rules: [{tools: [sends], unless: [x], verdict: ask}]", "rules.0.unless.0: "),
        (
            "rules: [{tools: [sends], verdict: ask, when: now}]",
            "rules.0.when: there is no such field: use one of tools, seen, unless, verdict",
        ),
        (
            "rules: [{tolls: [sends], verdict: ask}]",
            "rules.0.tolls: there is no such field: did you mean tools?",
        ),
        (
            "networks: [{tools: [sends], netwrk: all}]",
            "networks.0.netwrk: there is no such field: did you mean network?",
        ),
        ("rules: []\nprivate: [documents]", "private.0: "),
        ("rules: []\nsince: 2026-01-01", "has a value that is not text"),
        ("rules: []\nrules: []", "policy.yaml:2: "),
    ],
)
def test_a_fault_is_one_line_with_the_file_and_the_field(
    tmp_path: Path, text: str, fault: str
) -> None:
    with pytest.raises(UserError) as caught:
        read_rules(written(tmp_path, text))

    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file of a policy"):
        read_rules(tmp_path / "none.yaml")


def test_a_worker_does_not_start_with_a_faulty_policy(tmp_path: Path) -> None:
    settings = Settings(offline=True, policy_file=written(tmp_path, "rules: 1"))
    with pytest.raises(UserError, match="rules: must be a list"):
        make_workers_app(settings)


def test_doctor_reads_the_policy(tmp_path: Path) -> None:
    good = Settings(offline=True, policy_file=written(tmp_path, "rules: []"))
    bad = Settings(offline=True, policy_file=tmp_path / "none.yaml")
    levels: list[CheckLevel] = []
    for settings in (good, bad):
        for finding in examine(settings):
            if finding.about == "this shell: policy of tools":
                levels.append(finding.level)
    assert levels == [CheckLevel.OK, CheckLevel.FAIL]
