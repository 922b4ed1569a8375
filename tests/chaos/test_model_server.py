"""The model server of a chaos run records when each answer was sent, and whether a client read
it.
"""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from urllib.parse import urlsplit

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call, ChaosModel
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob, PlannedStep
from tests.waiting import wait_until

JOBS = (
    PlannedJob("1-0", Shape.PARALLEL, (PlannedStep("a", "writer"),), seed, trouble_share=0.0)
    for seed in range(100)
)
# An answer after 0.9 s: a client that disconnects at once is gone by then.
JOB = next(job for job in JOBS if job.draw_seconds(CallKey("1-0", "a.1", 1)) == 0.9)
BODY = json.dumps(
    {
        "model": "claude-haiku-5-5",
        "max_tokens": 100,
        "stream": True,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<task>Do a of 1-0.</task>"}]}
        ],
    }
).encode()
HEADERS = {
    "anthropic-version": "2026-10-21",
    "x-api-key": "k",
    "content-type": "application/json",
}


def answered_call(model: ChaosModel) -> Call:
    wait_until(lambda: bool(model.calls) and model.calls[0].out_at is not None)
    return model.calls[0]


def test_the_server_knows_when_the_last_byte_of_an_answer_has_left() -> None:
    with ChaosModel([JOB]) as model:
        began = time.time()
        with urllib.request.urlopen(
            urllib.request.Request(f"{model.url}/v1/messages", BODY, HEADERS), timeout=10
        ) as answer:
            answer.read()
        call = answered_call(model)

    assert call.out_at is not None
    assert began < call.at < call.out_at
    assert call.out_at - call.at >= JOB.draw_seconds(call.key)
    assert call.was_heard


def test_the_server_notices_that_the_caller_left_before_the_answer_was_sent() -> None:
    with ChaosModel([JOB]) as model:
        address = urlsplit(model.url)
        with socket.create_connection((address.hostname, address.port)) as client:
            headers = {**HEADERS, "content-length": str(len(BODY))}
            lines = [f"{name}: {value}" for name, value in headers.items()]
            head = "\r\n".join(["POST /v1/messages HTTP/1.1", *lines])
            client.sendall(f"{head}\r\n\r\n".encode() + BODY)
        call = answered_call(model)

    assert not call.was_heard
