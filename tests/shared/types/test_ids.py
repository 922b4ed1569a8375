"""Random ids are unique, and the id of a handoff holds its step and its attempt."""

from __future__ import annotations

import os
import random
import re

import pytest

from handoff_queue.shared.types.ids import (
    build_handoff_id,
    create_word,
    parse_attempt,
    parse_step_id,
)


def test_random_ids_are_sixteen_hex_digits_and_unique() -> None:
    ids = [create_word() for _ in range(1000)]

    assert all(re.fullmatch("[0-9a-f]{16}", word) for word in ids)
    assert len({*ids}) == 1000


def test_a_seeded_python_generator_repeats_no_random_id() -> None:
    state = random.getstate()
    try:
        random.seed(7)
        first = create_word()
        random.seed(7)

        assert create_word() != first
    finally:
        random.setstate(state)


@pytest.mark.slow
def test_a_forked_process_draws_different_random_ids() -> None:
    child_end, test_end = os.pipe()
    if (child := os.fork()) == 0:
        os.write(test_end, create_word().encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(child_end, 100).decode() != create_word()
    os.close(child_end)
    os.close(test_end)


def test_the_id_of_a_handoff_holds_its_step_and_its_attempt() -> None:
    name = build_handoff_id("find-all_2", 12)

    assert (parse_step_id(name), parse_attempt(name)) == ("find-all_2", 12)
