"""`import handoff_queue` gives the public API, and the documents import from nowhere else."""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import datetime
import inspect
import pathlib
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

import handoff_queue
from handoff_queue import testing, types
from tests.docs.pages import DOCS, ROOT, blocks, coded, rows, text_of

IMPORT = re.compile(r"^\s*(?:from|import) handoff_queue(\S*)", re.MULTILINE)
PLACE = re.compile(r"handoff_queue\.(?:shared|supervisor|workers|chaos)\.[a-z_.]*")
APPS = {"handoff_queue.supervisor.app", "handoff_queue.workers.app"}
"""Celery's command takes the path of an app."""
PUBLIC = {
    name: getattr(module, name)
    for module in (types, testing, handoff_queue)
    for name in module.__all__
}
PUBLIC_TYPES = list(PUBLIC.values())
PRIVATE_PATH = re.compile(r"\b(?:shared|supervisor|workers|chaos)(?:\.[a-z_]+)+")
STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
TYPE_NAME = re.compile(r"(?<![\w.])_?[A-Z]\w*")
ERROR = re.compile(r"^- ((?:`\w+`, )*`\w+`): ", re.MULTILINE)
OF_PYTHON = {
    *dir(builtins),
    *(name for module in (collections.abc, datetime, pathlib, typing) for name in module.__all__),
}
"""Names that a user imports from Python or need not import."""
OF_PYDANTIC = {"JsonValue"}
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", handoff_queue.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(handoff_queue, name) is not None


@pytest.mark.parametrize("name", testing.__all__)
def test_each_public_name_for_tests_is_there(name: str) -> None:
    assert getattr(testing, name) is not None


def test_each_public_type_of_a_field_is_there() -> None:
    assert [name for name in types.__all__ if getattr(types, name, None) is None] == []
    assert set(types.__all__) & set(handoff_queue.__all__) == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_the_annotations_of_a_public_name_use_public_types(name: str) -> None:
    """A user cannot annotate a variable with a type that has no public name."""
    private = {
        f"{place}: {named_type(part)}"
        for place, annotation in annotations_of(name, PUBLIC[name])
        for part in parts_of(annotation)
        if is_ours(part) and not any(part is known for known in PUBLIC_TYPES)
    }

    assert private == set()


def test_a_private_type_in_an_annotation_is_found() -> None:
    @dataclasses.dataclass
    class Example:
        field: dict[str, tuple[PrivateType, ...] | None]

    Example.__module__ = __name__
    ((_, annotation),) = annotations_of("Example", Example)

    assert PrivateType in parts_of(annotation)
    assert not any(PrivateType is known for known in PUBLIC_TYPES)


class PrivateType:
    """A type that has no public name."""


def annotations_of(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield place and annotation of each field and each public method of a public class, or of a
    public function. Types of fields have fields only: the product calls their methods.

    Raises:
        NameError: an annotation names a type that is imported for type checkers only, and that
            is not public.
    """
    if isinstance(thing, FunctionType):
        yield from hints(name, thing, vars(inspect.getmodule(thing)))
        return
    if not isinstance(thing, type):
        return
    for kind in thing.__mro__:
        module = vars(inspect.getmodule(kind))
        if not is_ours(kind):
            continue
        if dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel):
            fields = {
                field: written
                for field, written in vars(kind).get("__annotations__", {}).items()
                if not field.startswith("_") and field != "model_config"
            }
            yield from hints(name, SimpleNamespace(__annotations__=fields), module)
        if name not in types.__all__ or issubclass(kind, Enum):
            for method in public_functions(kind):
                yield from hints(f"{name}.{method.__name__}", method, module)


def hints(place: str, thing: Any, module: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield place and annotation of each annotation of a function or class."""
    for name, annotation in typing.get_type_hints(thing, PUBLIC | module).items():
        yield f"{place}: {name}", annotation


def public_functions(kind: type) -> Iterator[FunctionType]:
    """Yield the functions of the public methods and properties that a class defines."""
    for name, member in vars(kind).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and not name.startswith("_"):
            unwrapped = inspect.unwrap(function)
            assert isinstance(unwrapped, FunctionType)
            yield unwrapped


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation, such as `A` and `B` of `dict[str, A | B]`."""
    if isinstance(annotation, list):  # the parameters of a Callable
        for part in annotation:
            yield from parts_of(part)
        return
    origin = typing.get_origin(annotation)
    if origin is None:
        yield annotation
    elif origin is typing.Annotated:
        yield from parts_of(annotation.__origin__)
    elif origin is not typing.Literal:
        for part in (origin, *typing.get_args(annotation)):
            yield from parts_of(part)


def is_ours(kind: Any) -> bool:
    """Return whether a type is a class or `NewType` of this project."""
    module = getattr(kind, "__module__", None) or ""
    is_type = isinstance(kind, (type, typing.NewType))
    return is_type and module.partition(".")[0] in ("handoff_queue", "tests")


def named_type(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__name__}"


@pytest.mark.parametrize("page", ["python-api", "field-types", "events"])
def test_the_reference_of_the_api_shows_no_private_path(page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text()
    paths = {match[0].replace(".", "/") for match in PRIVATE_PATH.finditer(text)}

    assert [path for path in paths if list(ROOT.glob(f"{path}*"))] == []


@pytest.mark.parametrize("page", ["python-api", "field-types", "events"])
def test_the_reference_of_the_api_names_only_types_that_a_user_can_import(page: str) -> None:
    text = text_of(f"reference/{page}")

    assert printed_names(text) - PUBLIC.keys() - OF_PYTHON - OF_PYDANTIC == set()


def test_a_printed_private_type_is_found() -> None:
    table = "| Field | Type | Default | Meaning |\n| `a` | `_Count \\| None` | `F()` | |\n"
    block = "```text\ndef f(a: dict[str, JobLimits]) -> None\n```\n"
    raises = "- `ManyProblems`, `UserError`: cells are not valid.\n"

    names = {"_Count", "None", "F", "JobLimits", "ManyProblems", "UserError"}
    assert printed_names(table + block + raises) == names


def printed_names(text: str) -> set[str]:
    """Return the names of types in the tables of fields, the signatures and the errors."""
    parts = blocks(text, "text")
    for row in rows(text):
        if len(row) == 4:
            parts += [coded(row[1]), coded(row[2])]
    parts += ERROR.findall(text)
    return {name for part in parts for name in TYPE_NAME.findall(STRING.sub("", part))}


def test_a_name_that_is_not_public_is_not_an_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StoreBooks'"):
        _ = handoff_queue.StoreBooks  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_import_of_the_package_loads_none_of_its_modules() -> None:
    program = "import sys, handoff_queue; print([m for m in sys.modules if 'handoff_queue.' in m])"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_a_sample_imports_from_the_package_and_from_no_module_of_it() -> None:
    for page in PAGES:
        samples = "".join(blocks(page.read_text(), "python"))

        assert set(IMPORT.findall(samples)) <= {"", ".testing", ".types"}, page


def test_a_page_for_users_names_no_private_module() -> None:
    for page in PAGES:
        named = {place.rstrip(".") for place in PLACE.findall(page.read_text())}

        assert named <= APPS | {"handoff_queue.supervisor.cli.main"}, page
