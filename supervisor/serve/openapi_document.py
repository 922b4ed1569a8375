"""The OpenAPI document: FastAPI's document with the bodies and the problem documents."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from handoff_queue.supervisor.serve.event_routes import EventsPage
from handoff_queue.supervisor.serve.job_routes import RETURNED_DOCUMENTS
from handoff_queue.supervisor.serve.problem_documents import MEDIA_TYPE, ProblemDocument
from handoff_queue.supervisor.serve.request_body import BODIES

_REF = "#/components/schemas/{model}"


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=ProblemDocument.__name__)}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("The request, a document or a limit cannot be used."),
    401: _problem("There is no token, or the token is not valid."),
    403: _problem("The role or the tenant of the token does not allow it."),
    404: _problem("There is no such job, handoff, letter or schedule that the token may see."),
    409: _problem(
        "The idempotency key was used for another request, the name of a schedule is taken, or the"
        " record of the job cannot be used."
    ),
    413: _problem("The body is too large."),
    415: _problem("The body has the wrong media type."),
    422: _problem("Fields are not valid: `errors` has one entry for each problem."),
    429: _problem(
        "Too many requests or wrong tokens, or the budget of the day is spent: see Retry-After."
    ),
    503: _problem("Redis cannot be reached, or is full."),
}
"""The errors of every operation."""


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        openapi_version="3.1.0",
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    models: tuple[type[BaseModel], ...] = (
        *BODIES,
        *RETURNED_DOCUMENTS,
        ProblemDocument,
        EventsPage,
    )
    for model in models:
        schemas.update(_schemas_of(model))
    return document


def _schemas_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model, and the schemas of the models in it, by name."""
    schema = model.model_json_schema(ref_template=_REF)
    schemas = schema.pop("$defs", {})
    return {**schemas, model.__name__: schema}
