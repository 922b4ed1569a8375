"""Plain Celery under the faults of `handoff chaos`, as a control. It is not part of the wheel.

Run it from the root of the repository: `python -m benchmarks.celery_control`. Without any
broken promise the run proves nothing. `chaos/RESULTS.md` has the results.
"""
