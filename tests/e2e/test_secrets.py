"""API keys, secrets in documents and secrets that a model repeats stay in payloads. No other key,
event, log or message contains them.

docs/security-measures.md lists the keys of payloads.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.request import Request
from tests.docs.pages import rows, sections, spans, text_of
from tests.doubles.webhook_server import WebhookServer
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.e2e.fleets import CANARY, WEBHOOK_SECRET
from tests.e2e.secret_repeating_model import SECRET, SecretRepeatingModel
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

IN_DOCUMENT = "canary-in-a-document-7731"
PAYLOAD_KEYS = [
    name
    for row in rows(sections(text_of("security-measures"))["Where texts are"])
    for name in spans(row[0])
]
PLACEHOLDERS = {
    "JOB": "j-(?:[a-z2-7]{16}|[0-9a-f]{12})",
    "HANDOFF": "[a-z.0-9]+",
    "DIGEST": "[0-9a-f]{64}",
    "SCHEDULE": "[0-9a-f]{12}",
    "SPECIALIST": SPECIALIST,
    "AGENT": "[a-z_-]+",
    "TENANT": "[a-z]+",
    "NAME": "hqn_[0-9a-f]{32}",
}
PAYLOADS = re.compile(
    "|".join(
        re.sub(r"[A-Z]+", lambda name: PLACEHOLDERS[name[0]], re.escape(name))
        for name in PAYLOAD_KEYS
    )
)
END_OF_MONITORING = "end of the monitored commands"


def redis_contents(fleet: Fleet) -> dict[str, str]:
    """Return every key in Redis, with its content as text."""
    read: dict[str, Callable[[bytes], object]] = {
        "string": fleet.redis.get,
        "hash": fleet.redis.hgetall,
        "list": lambda name: fleet.redis.lrange(name, 0, -1),
        "zset": lambda name: fleet.redis.zrange(name, 0, -1),
        "set": fleet.redis.smembers,
        "stream": fleet.redis.xrange,
    }
    return {
        name.decode(): str(read[fleet.redis.type(name).decode()](name))
        for name in fleet.redis.scan_iter()
    }


def logs_of(fleet: Fleet) -> dict[str, str]:
    logs = {
        path.name: path.read_text(errors="replace")
        for path in fleet.system.processes.get_log_path("w1").parent.glob("*.log")
    }
    assert len(logs) >= 6
    return logs


def monitored_commands(monitor: Iterator[dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield every command that Redis ran, also inside scripts: its name, its key, and its text with
    Celery's messages decoded.

    The arguments of a script do not count as keys: each write of the script is a separate command.
    """
    for entry in monitor:
        command = entry["command"]
        if END_OF_MONITORING in command:
            return
        name, _, rest = command.partition(" ")
        bodies = re.findall(r'body\\*": ?\\*"([A-Za-z0-9+/=]+)', command)
        if name.upper() not in ("EVALSHA", "EVAL", "SCRIPT"):
            yield (
                name.upper(),
                rest.partition(" ")[0],
                command + "".join(base64.b64decode(body).decode() for body in bodies),
            )


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes.md").write_text(
        f"# Qdrant\n\nThe password of Qdrant is {IN_DOCUMENT}, or {SECRET}.\n"
    )
    return tmp_path


@pytest.fixture
def model(fleet: Fleet) -> Iterator[SecretRepeatingModel]:
    previous, fleet.server.script = fleet.server.script, SecretRepeatingModel()
    yield fleet.server.script
    fleet.server.script.release.set()
    fleet.server.script = previous


def test_secrets_of_settings_and_documents_stay_in_payloads(fleet: Fleet, notes: Path) -> None:
    request = Request("What is the password of Qdrant?", documents=notes, model="offline")

    job_id = fleet.jobs.submit(request)
    result = fleet.jobs.result(job_id, wait_s=60)
    fleet.wait_for_success(fleet.submit("secrets", turns=2, a=""))

    assert IN_DOCUMENT in result.to_json(), "a tool has read the document into a result"
    contents = redis_contents(fleet)
    assert [
        name for name, text in contents.items() if CANARY in text or WEBHOOK_SECRET in text
    ] == []
    assert [
        name
        for name, text in contents.items()
        if IN_DOCUMENT in text and not PAYLOADS.fullmatch(name)
    ] == []
    secrets = (CANARY, WEBHOOK_SECRET, IN_DOCUMENT)
    assert [
        name for name, text in logs_of(fleet).items() for secret in secrets if secret in text
    ] == []


def test_a_secret_that_a_model_repeats_stays_in_payloads_at_every_moment(
    fleet: Fleet, model: SecretRepeatingModel, notes: Path
) -> None:
    with WebhookServer(200) as hook, fleet.redis.monitor() as monitor:
        jobs = {
            name: fleet.jobs.submit(Request(f"plan {name}", documents=notes, webhook_url=hook.url))
            for name in ("talk", "fail", "mute")
        }
        wait_until(
            lambda: SECRET in draft_of(fleet, jobs["talk"]), timeout_s=60, expected="a draft"
        )
        model.release.set()
        results = {name: fleet.jobs.result(job_id, wait_s=60) for name, job_id in jobs.items()}
        wait_until(lambda: len(hook.posts) == 3, expected="the webhooks")
        fleet.redis.echo(END_OF_MONITORING)
        commands = list(monitored_commands(monitor.listen()))

    assert [result.status for result in results.values()] == [
        JobStatus.PARTIAL,
        JobStatus.FAILED,
        JobStatus.PARTIAL,
    ]
    for result in results.values():
        without_secret = [
            step_result for step_result in result.results if SECRET not in str(step_result)
        ]
        assert {entry["step_id"] for entry in without_secret} <= {"planner"}, (
            "every other role has repeated the secret"
        )
        assert SECRET in str((result.notes, result.plan, result.verdicts)), (
            "the result contains the secret"
        )
    (gap,) = [
        line for line in str(results["talk"].answer).splitlines() if line.startswith("- give")
    ]
    assert gap.startswith(f"- give (generalist): needs: {SECRET}")
    assert len({name for name, key, _ in commands if PAYLOADS.fullmatch(key)}) > 3, (
        "the monitor has seen writes of payloads"
    )
    assert (
        sorted(
            {
                (name, key)
                for name, key, text in commands
                if SECRET in text and not PAYLOADS.fullmatch(key)
            }
        )
        == []
    )
    assert any(name == "PUBLISH" and "task-received" in text for name, _, text in commands), (
        "the monitor has seen Celery's events"
    )
    assert [name for name, text in logs_of(fleet).items() if SECRET in text] == []
    assert [post.body for post in hook.posts if SECRET.encode() in post.body] == []
    assert all(
        SECRET not in recorded.event.to_json()
        for job_id in jobs.values()
        for recorded in fleet.jobs.events(job_id, follow=False)
    )


def draft_of(fleet: Fleet, job_id: JobId) -> str:
    return fleet.jobs.store.payloads.draft(job_id, HandoffId("synthesizer.1"))


def test_the_key_reaches_only_the_model(fleet: Fleet) -> None:
    fleet.wait_for_success(fleet.submit("key", a=""))

    assert CANARY in " ".join(fleet.server.headers[-1].values())
