"""The OpenAPI document: FastAPI's document with the bodies and the problem documents. The page
`/v1/reference` shows it as HTML, without scripts and other files.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from handoff_queue.supervisor.serve.event_routes import EventsPage
from handoff_queue.supervisor.serve.job_routes import RETURNED_DOCUMENTS
from handoff_queue.supervisor.serve.problem_documents import (
    BUDGET_SPENT,
    KINDS,
    MEDIA_TYPE,
    TOO_MANY_JOBS,
    ProblemDocument,
)
from handoff_queue.supervisor.serve.request_body import BODIES

_REF = "#/components/schemas/{model}"


def _build_problem_response(description: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=ProblemDocument.__name__)}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _build_problem_response("The request, a document or a limit cannot be used."),
    401: _build_problem_response("There is no token, or the token is not valid."),
    403: _build_problem_response("The access level or the tenant of the token does not allow it."),
    404: _build_problem_response(
        "There is no such job, handoff, letter or schedule that the token may see."
    ),
    408: _build_problem_response("The next bytes of the body did not arrive in time."),
    409: _build_problem_response(
        "The idempotency key was used for another request, the name of a schedule is taken, or the"
        " record of the job cannot be used."
    ),
    413: _build_problem_response("The body is too large."),
    415: _build_problem_response("The body has the wrong media type."),
    422: _build_problem_response("Fields are not valid: `errors` has one entry for each problem."),
    429: _build_problem_response(
        "Too many requests or wrong tokens, or the budget of the day is spent: see Retry-After."
    ),
    503: _build_problem_response("Redis cannot be reached, or is full."),
}
"""The errors of every operation."""


def build_openapi_document(app: FastAPI) -> dict[str, Any]:
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
        schemas.update(_build_schemas(model))
    return document


def _build_schemas(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model, and the schemas of the models in it, by name."""
    schema = model.model_json_schema(ref_template=_REF)
    schemas = schema.pop("$defs", {})
    return {**schemas, model.__name__: schema}


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid GrayText; }
h3 { margin: 1.5rem 0 0.25rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid GrayText; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }
""".strip()  # noqa: E501 - lines of a text
_DIGEST = hashlib.sha256(STYLE.encode()).digest()
_HASH = base64.b64encode(_DIGEST).decode()
CSP = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)

router = APIRouter(include_in_schema=False)
"""Both routes run in a thread, because the first document would block the event loop."""


@router.get("/v1/openapi.json")
def openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/v1/reference")
def reference(request: Request) -> HTMLResponse:
    """Return the page."""
    page = "\n".join(_iterate_page_lines(request.app.openapi()))
    return HTMLResponse(page, headers={"Content-Security-Policy": CSP})


def _iterate_page_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page for an OpenAPI document."""
    title = escape(f"{document['info']['title']}: HTTP API")
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
    yield f"<h1>{title}</h1><p>{escape(document['info']['summary'])}</p>"
    yield '<p>Programs read <a href="/v1/openapi.json">/v1/openapi.json</a> (OpenAPI 3.1).</p>'
    tag = ""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (operation_tag,) = operation["tags"]
            if operation_tag != tag:
                tag = operation_tag
                yield f"<h2>{escape(tag.capitalize())}</h2>"
            yield from _iterate_operation_lines(method, path, operation)
    yield "<h2>Schemas</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _iterate_schema_lines(name, schema)
    yield "<h2>Errors</h2><p>Every error is a problem document of RFC 9457.</p><dl>"
    kinds = [*KINDS.items(), (404, "unknown-job"), (429, BUDGET_SPENT), (429, TOO_MANY_JOBS)]
    for status, kind in kinds:
        yield f'<dt id="{kind}"><code>{kind}</code></dt><dd>Status {status}</dd>'
    yield "</dl></main></body></html>"


def _iterate_operation_lines(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    summary = escape(operation["summary"])
    yield f"<p><strong>{summary}.</strong> {_format_description(operation)}</p>"
    parameters = operation.get("parameters")
    if parameters:
        yield "<table><tr><th>Parameter</th><th>In</th><th>Type</th><th>Meaning</th></tr>"
        for parameter in parameters:
            cells = (
                f"<code>{escape(parameter['name'])}</code>",
                escape(parameter["in"]),
                _format_type(parameter["schema"]),
                _format_description(parameter),
            )
            yield _format_row(cells)
        yield "</table>"
    body = operation.get("requestBody")
    if body:
        yield f"<p>Body: {_format_media(body['content'])}</p>"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            media = _format_media(response.get("content", {}))
            yield f"<p>{status}: {media} {_format_description(response)}</p>"


def _iterate_schema_lines(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="schema-{escape(name)}"><code>{escape(name)}</code></h3>'
    yield f"<p>{_format_description(schema)}</p>"
    values = schema.get("enum")
    if values:
        codes = [f"<code>{escape(str(value))}</code>" for value in values]
        yield f"<p>{', '.join(codes)}</p>"
    fields = schema.get("properties")
    if fields:
        required = schema.get("required", ())
        yield "<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>"
        for field, kind in fields.items():
            mark = " (required)" if field in required else ""
            yield _format_row(
                (
                    f"<code>{escape(field)}</code>{mark}",
                    _format_type(kind),
                    _format_description(kind),
                )
            )
        yield "</table>"


def _format_row(cells: tuple[str, ...]) -> str:
    columns = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr>{columns}</tr>"


def _format_description(part: Mapping[str, Any]) -> str:
    """Return the description of a part of the document on one line, as HTML."""
    words = str(part.get("description", "")).split()
    return escape(" ".join(words))


def _format_media(content: Mapping[str, Any]) -> str:
    html_parts: list[str] = []
    for media_type, form in content.items():
        html_parts.append(
            f"<code>{escape(media_type)}</code> {_format_type(form.get('schema', {}))}"
        )
    return ", ".join(html_parts)


def _format_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema as HTML, with a link to a named schema."""
    ref = schema.get("$ref")
    if ref:
        name = escape(ref.rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    choices = schema.get("anyOf")
    if choices:
        return " or ".join(_format_type(choice) for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_format_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))
