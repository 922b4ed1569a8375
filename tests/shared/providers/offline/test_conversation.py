"""A request whose material looks like the tags of a request is read in a short time."""

from __future__ import annotations

import pytest

from handoff_queue.shared.agent.opening_message import BEFORE_NOTES
from handoff_queue.shared.providers.offline.conversation import RequestParts, iterate_objects
from tests.machine_pace import measure

BACKSLASH = "\\"


@pytest.mark.parametrize(
    "material",
    [
        "<documents>" * 40_000,
        "<documents " * 40_000,
        "<result>" * 40_000,
        "<result " * 40_000,
        f"<result {'a' * 400_000}></result>",
        f"<result><data>x{BEFORE_NOTES}[c1] {BACKSLASH}; "
        + f"{BACKSLASH}; " * 100_000
        + "</result>",
        f'<result><data>x{BEFORE_NOTES}[c1] "' + f'{BACKSLASH}"' * 200_000 + "</result>",
    ],
    ids=lambda text: text[:12],
)
def test_tags_without_an_end_take_little_time(material: str) -> None:
    request = {
        "model": "offline",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": f"<task>Compare the pumps.</task> {material}"}],
    }

    assert measure(lambda: RequestParts.from_request(request), limit_s=2) < 2
    assert RequestParts.from_request(request).task == "Compare the pumps."


def test_a_result_that_is_nested_too_deeply_is_a_text() -> None:
    output = "[" * 20_000
    text = f"<task>Compare.</task> <result><data>{output}{BEFORE_NOTES}</data></result>"
    request = {
        "model": "offline",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": text}],
    }

    (result,) = RequestParts.from_request(request).results

    assert result.output == output


def test_an_object_that_is_nested_too_deeply_is_left_out() -> None:
    whole = '{"source": "a.md", "snippet": "x"}'

    assert list(iterate_objects(whole + '{"source":' * 1_200, "source")) == [
        {"source": "a.md", "snippet": "x"}
    ]
