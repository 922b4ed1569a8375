"""All processes derive the same id from an idempotency key and the secret of the installation."""

from __future__ import annotations

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import job_ids, keys
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.ids import is_job_id


def test_all_processes_derive_the_same_id(store: Store, redis_url: str) -> None:
    other = open_store(redis_url, Settings())

    job_id = store.job_ids.derive("acme", "order-7")

    assert is_job_id(job_id)
    assert other.job_ids.derive("acme", "order-7") == job_id
    assert store.job_ids.derive("acme", "order-8") != job_id
    assert store.job_ids.derive("globex", "order-7") != job_id
    other.connection.close()


def test_each_installation_derives_other_ids(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis has lost its data, so the secret is another one."""
    monkeypatch.setattr(job_ids, "GOOD_FOR_S", 0.0)
    job_id = store.job_ids.derive("acme", "order-7")

    store.connection.redis.delete(keys.ID_SECRET)

    assert store.job_ids.derive("acme", "order-7") != job_id
