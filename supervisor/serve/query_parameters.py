"""The check of the names in a query: an unknown filter must not return all jobs."""

from __future__ import annotations

from fastapi import Request
from fastapi.dependencies.models import Dependant

from handoff_queue.supervisor.serve.problem_documents import Problem


def check_query(request: Request) -> None:
    """Check that the resource knows each parameter of the query.

    Raises:
        Problem: the resource does not know a parameter.
    """
    if not request.query_params:
        return
    known = _names_of(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has no parameters"
            problem = f"is not a parameter of this resource: {has}"
            shown = name[:60]
            raise Problem(422, f"{shown}: {problem}", errors=[(f"#query/{shown}", problem)])


def _names_of(dependant: Dependant) -> set[str]:
    """Return the names of the query parameters of a resource and of its dependencies."""
    names = {field.alias for field in dependant.query_params}
    for below in dependant.dependencies:
        names |= _names_of(below)
    return names
