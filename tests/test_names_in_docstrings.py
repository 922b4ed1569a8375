"""The names in docstrings and comments exist: a renamed function is renamed in the texts, too."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ROOMS = ("shared", "supervisor", "workers", "chaos", "handoff_queue/testing")
QUOTED = re.compile(r"`([^`\n]+)`")
MEMBER = re.compile(r"(?:[a-z_]+\.)*(?P<owner>\w+)\.(?P<name>[A-Za-z_]\w*)")
"""A member of a class or of a module, such as `Journal.read` or `keys.DUE`."""
IN_A_FOLDER = re.compile(r"(?:shared|supervisor|workers)\.\w+\.")
"""Beginning of the path of a module in a folder. `supervisor.advance` is a task of Celery."""
NO_BASES = ("Protocol", "NamedTuple")


@dataclass
class Names:
    """The names of the product."""

    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The members of each class, and of each module by the last part of its name."""
    bases: dict[str, list[str]] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        module = path.parent.name if path.stem == "__init__" else path.stem
        self.members[module] |= set(names_in(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.members[node.name] |= set(names_in(ast.walk(node)))
                bases = map(ast.unparse, node.bases)
                self.bases[node.name] = [base for base in bases if base not in NO_BASES]

    def has(self, owner: str, name: str) -> bool:
        """Return whether a class or a module has this member. A class with a base of another
        package may have any member.
        """
        if name in self.members.get(owner, ()):
            return True
        for base in self.bases.get(owner, []):
            if base not in self.members or self.has(base, name):
                return True
        return False

    def lacks(self, path: str) -> bool:
        """Return whether a dotted path names a member of the product that does not exist."""
        member = MEMBER.fullmatch(path)
        if member is None or (ROOT / path.replace(".", "/")).with_suffix(".py").exists():
            return False
        owner, name = member["owner"], member["name"]
        is_of_class = owner in self.bases
        is_of_module = IN_A_FOLDER.match(path) or (name.isupper() and owner in self.members)
        return bool(is_of_class or is_of_module) and not self.has(owner, name)


def names_in(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """Yield the names that these statements define or import."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield (alias.asname or alias.name).split(".")[0]
            case ast.Assign():
                yield from (name for target in node.targets for name in target_names(target))
            case ast.AnnAssign():
                yield from target_names(node.target)


def target_names(target: ast.expr) -> Iterator[str]:
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def missing_members(names: Names, source: str) -> Iterator[str]:
    """Yield the line and the text of each quotation that names a member that does not exist."""
    for quoted in QUOTED.finditer(source):
        if names.lacks(quoted[1].partition("(")[0]):
            line = source.count("\n", 0, quoted.start()) + 1
            yield f"{line}: {quoted[1]}"


@pytest.fixture(scope="module")
def names() -> Names:
    product_names = Names()
    for path in sources():
        product_names.add(path)
    return product_names


def test_members_that_the_texts_name_exist(names: Names) -> None:
    missing: list[str] = []
    for path in sources():
        for place in missing_members(names, path.read_text()):
            missing.append(f"{path.relative_to(ROOT)}:{place}")
    assert missing == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Journal.read", []),
        ("Journal.pages", ["1: Journal.pages"]),
        ("Journal.pages(job_id)", ["1: Journal.pages(job_id)"]),
        ("SpecialistSpec.from_json", []),
        ("anthropic.AsyncAnthropic", []),
    ],
)
def test_a_name_of_a_member_that_does_not_exist_is_found(
    names: Names, text: str, expected: list[str]
) -> None:
    assert list(missing_members(names, f'"""See `{text}`."""\n')) == expected
