"""The supervisor's app with the parts that `plain_forms.py` replaces."""

from __future__ import annotations

from celery import Celery

from benchmarks.plain_forms import use_plain_form


def _make_patched_app() -> Celery:
    use_plain_form()
    from benchmarks.handoff_supervisor import app as made

    return made


app = _make_patched_app()
