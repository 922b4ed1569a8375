"""The rules of docs/contributing.md that a program can check. There is no list of exemptions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("shared", "supervisor", "workers", "chaos", "handoff_queue/testing")
VAGUE = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}
REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|index-url|registry-1\.docker|npmjs\.org|ghcr\.io"
)

WATCH = """
import gc, importlib, sys, threading

FORBIDDEN = {"socket.connect", "socket.bind", "subprocess.Popen", "os.system", "os.exec", "os.fork"}

def hook(event, args):
    writes = event == "open" and isinstance(args[1], str) and set("wax+") & set(args[1])
    if event in FORBIDDEN or writes:
        raise SystemExit(f"{event} {args}")

gc.disable()  # it finds nothing during an import, and takes a fifth of the time
sys.dont_write_bytecode = True
sys.addaudithook(hook)
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert threading.active_count() == 1, name
"""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_names(*folders: str) -> list[str]:
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources(*folders)]


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "benchmarks" / "RESULTS.md",
        ROOT / "chaos" / "RESULTS.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*.md")),
    ]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_name_is_vague() -> None:
    vague = [
        relative(path)
        for path in sources(*ROOMS, "tests")
        if path.stem in VAGUE or path.parent.name in VAGUE
    ]

    assert not vague, "a name says what is inside"


def test_every_module_has_a_docstring() -> None:
    undocumented = [
        relative(path)
        for path in sources(*ROOMS)
        if path.name != "__init__.py" and not path.read_text().startswith('"""')
    ]

    assert not undocumented


@pytest.mark.parametrize(("ending", "most"), [("js", 100), ("css", 100), ("html", 120)])
def test_scripts_styles_and_templates_have_short_lines(ending: str, most: int) -> None:
    """A template has the attributes of one element, and the texts, in a line."""
    long_lines = [
        f"{relative(path)}:{number}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob(f"*.{ending}"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > most
    ]

    assert not long_lines


def test_every_folder_of_code_is_a_package() -> None:
    """Without an __init__.py, `import supervisor` finds tests/supervisor."""
    folders = {
        relative(path.parent)
        for path in sources(*ROOMS, "tests")
        if not (path.parent / "__init__.py").exists()
    }

    assert not folders


def test_tests_neither_sleep_nor_mock() -> None:
    forbidden = re.compile(
        r"\b(time|asyncio)\.sleep\(|from time import"
        r" .*\bsleep\b|unittest\.mock|\bMagicMock\b|pytest_mock"
    )
    offenders = [
        relative(path)
        for path in sources("tests")
        if path != Path(__file__) and forbidden.search(path.read_text())
    ]

    assert not offenders, (
        "wait for a condition (tests/waiting.py); write a double that passes the contracts"
    )


def test_no_committed_file_names_a_registry_or_a_machine() -> None:
    places = [
        ROOT,
        ROOT / ".ci",
        *(ROOT / folder for folder in (*ROOMS, "docs", "examples", "benchmarks", "tests")),
    ]
    files = {
        path
        for place in places
        for path in (place.glob("*") if place in places[:2] else place.rglob("*"))
        if path.is_file()
    }
    offenders = [
        relative(path)
        for path in sorted(files)
        if path
        not in {
            Path(__file__),
            ROOT / ".git",
        }  # of a second work tree: a file that names the first
        if path.suffix in {".py", ".md", ".txt", ".toml", ".yml", ".lua", ".sh", ".example", ""}
        if REGISTRIES.search(text := path.read_text(errors="replace")) or "/work/" + "main" in text
    ]

    assert not offenders


@pytest.mark.slow
def test_importing_a_module_starts_nothing() -> None:
    """An import opens no connection, starts no process or thread, writes no file and prints
    nothing. Only app.py modules build clients.
    """
    package = "handoff_queue."
    modules = [
        package + name.removesuffix(".__init__").removeprefix(package)
        for name in module_names(*ROOMS)
        if name.split(".")[-1] not in {"app", "__main__"}
    ]

    completed = subprocess.run(
        [sys.executable, "-c", WATCH, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


def code_lines() -> Iterator[tuple[Path, str]]:
    """Yield the code spans and the lines of code blocks in the documents, with their file."""
    for path in documents():
        text = path.read_text()
        for code in re.findall(r"`([^`\n]+)`", text) + re.findall(
            r"^(?:    |\$ )(.+)$", text, re.MULTILINE
        ):
            yield path, code


def test_files_that_the_documents_name_exist() -> None:
    place = re.compile(
        rf"(?:{'|'.join([*ROOMS, 'docs', 'tests', 'examples', 'benchmarks', r'[.]ci'])})/[\w./*-]*"
    )
    missing = {
        f"{relative(path)}: {named}"
        for path, code in code_lines()
        for named in place.findall(code)
        if code.startswith(named) and not list(ROOT.glob(named.rstrip("/.")))
    }

    assert not missing


def test_targets_of_links_in_the_documents_exist() -> None:
    dead = {
        f"{relative(path)}: {target}"
        for path in documents()
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text())
        if "://" not in target
        and not target.startswith("mailto:")
        and not (path.parent / target).exists()
    }

    assert not dead


ORDER = re.compile(
    r"\b(?:replace (?:all|readers|supervisors|workers)|no longer|before the upgrade"
    r"|after the upgrade|during an upgrade|new fields?|again for your own|users again"
    r"|before you (?:replace|use))\b",
    re.IGNORECASE,
)
"""Words of an order to a user of an earlier version."""


def test_the_section_of_the_first_release_orders_no_upgrade() -> None:
    """There is no earlier version. A later section may tell users how to upgrade."""
    text = (ROOT / "CHANGELOG.md").read_text()
    _, _, first_release = text.partition("\n## 0.1.0")

    assert first_release
    assert ORDER.findall(first_release) == []


def test_make_targets_that_the_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for _, code in code_lines() for target in re.findall(r"^make ([a-z-]+)", code)}

    assert named <= targets


@pytest.mark.parametrize(
    "file",
    [
        "requirements.txt",
        "requirements-agent-sdk.txt",
        "requirements-otel.txt",
        "requirements-dev.txt",
        "requirements-docs.txt",
        "requirements-bench.txt",
        "requirements-helm.txt",
        "requirements-axe.txt",
        "requirements-injection.txt",
        "requirements-fuzz.txt",
        "requirements-small-model.txt",
    ],
)
def test_every_requirement_is_pinned(file: str) -> None:
    lines = [
        line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")
    ]

    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+( ; .+)?", line) for line in lines)


ROOMS_OF_THE_API = (
    "shared/store",
    "shared/types",
    "supervisor/client",
    "supervisor/gates",
    "supervisor/lifecycle",
    "supervisor/serve",
    "supervisor/workflows",
)
"""Folders whose errors the HTTP API returns to callers."""


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield the texts in a node, without those of the argument `command`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.keyword) and child.arg == "command":
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        yield from texts_in(child)


def test_an_error_of_the_http_api_names_no_command() -> None:
    """The argument `command` of a `UserError` names it, for the command line only."""
    named = [*form("shared").errors_with_commands, *form("supervisor").errors_with_commands]

    assert [error for error in named if error.startswith(ROOMS_OF_THE_API)] == []


ROOMS_OF_THE_COMMANDS = ("supervisor/cli/", "supervisor/evaluation/")
"""Folders whose messages only users of the commands read."""
OPTION = re.compile(r"(?<![\w`-])--[a-z]")
OPTION_OF_FIELD = re.compile(r" \((?:\w+ )?--[a-z][^()]*\)")
"""The form that `UserError` leaves out for programs and the HTTP API."""
COMMAND_IN_TEXT = re.compile(r"`handoff [^`]*`")
MIN_WORDS = 4
"""Fewest words of a message. Shorter texts are options and commands themselves."""


def messages_of(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each message in a node. Docstrings are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.keyword) and child.arg == "command":
            continue
        if isinstance(child, ast.JoinedStr):
            yield child.lineno, "".join(texts_in(child))
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        else:
            yield from messages_of(child)


def test_a_message_for_programs_names_no_option_of_a_command() -> None:
    """A field may have its option behind it, as in `deadline_s (--deadline)`."""
    named = [*form("shared").messages_with_options, *form("supervisor").messages_with_options]

    assert [message for message in named if not message.startswith(ROOMS_OF_THE_COMMANDS)] == []


CHECK = re.compile(
    r"_*(?:(?:assert|check|keep|raises|warns|fail)(?:_|$)|wait_)|run_state_machine_as_test"
)
"""Names of functions that raise if a promise is broken, such as `check_end` and `wait_until`.
`wait` alone, of a process or a thread, shows nothing.
"""


def test_every_test_checks_something() -> None:
    """A function of the product that does not raise shows little. Such a test asserts a value."""
    assert form_of_tests().tests_without_check == []


def functions_of_tests(scope: ast.Module | ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield the tests of a module and of its classes."""
    for node in scope.body:
        match node:
            case ast.ClassDef():
                yield from functions_of_tests(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield node


def asserts(test: ast.stmt) -> bool:
    """Return whether a test has an assertion. This is faster than `checks_something`."""
    return any(isinstance(node, ast.Assert) for node in ast.walk(test))


def checks_something(test: ast.AST, tree: ast.AST) -> bool:
    product = product_names(tree)
    return any(is_check(node, product) for node in ast.walk(test))


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        ("assert answer == 4", True),
        ("with pytest.raises(UserError): parse('x')", True),
        ("wait_until(lambda: done)", True),
        ("job.check_end()", True),
        ("process.wait()", False),
        ("parse('x')", False),
        ("check_run(proof)", False),
        ("worker.check_worker(['coder'])", False),
    ],
)
def test_a_test_without_a_check_is_found(body: str, checks: bool) -> None:
    tree = ast.parse(f"from handoff_queue.shared.trust import check_run\n{body}")

    assert checks_something(tree, tree) == checks


def is_check(node: ast.AST, product: set[str]) -> bool:
    """Return whether a node is an assertion, or the call of a helper of the tests that checks.

    Args:
        product: the names that the file imports from the product.
    """
    if isinstance(node, ast.Assert):
        return True
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return bool(CHECK.match(name)) and name not in product
        case ast.Call(func=ast.Attribute(attr=name)):
            return bool(CHECK.match(name)) and name not in methods_of_product()
    return False


def product_names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("handoff_queue"):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


@cache
def methods_of_product() -> set[str]:
    """Return the names of all functions of the product that look like a check."""
    definition = re.compile(r"^ +(?:async )?def (\w+)", re.MULTILINE)
    names: set[str] = set()
    for path in sources(*ROOMS):
        names.update(filter(CHECK.match, definition.findall(path.read_text())))
    return names


PRODUCT = ("shared", "supervisor", "workers", "chaos", "benchmarks", "handoff_queue/testing")
EMPTY_NAMES = {"came", "found", "how", "mine", "one", "ours", "said", "theirs", "told"}
"""Names of variables that do not say which value a variable holds."""
OF_THE_WORLD = {
    "asyncio",
    "os",
    "secrets",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "handoff_queue.shared.store.store",
}
"""Modules that read or change something outside of the program."""
VAGUE_NAMES = set(
    "asked begun chosen given held kept made named shown stored taken there wanted what who"
    " whole".split()
)
"""Names of variables that need a noun: `shown_steps`, not `shown`. Only the product keeps this
rule, and fields keep the words of their JSON.
"""
_EMPTY = "|".join(EMPTY_NAMES)
MAY_BREAK_A_RULE = re.compile(
    r"\belse\b(?!:).*\belse\b(?!:)"
    rf"|\b(?:as|def|for|lambda) (?:{_EMPTY})\b|\b(?:{_EMPTY})\b ?[:=,)]",
    re.DOTALL,
)
"""Texts with two conditional expressions, or with a name of `EMPTY_NAMES`. It is faster to search
than to parse a file.
"""
INLINE_ARGUMENT = re.compile(r"(?:^|[.]\s+)`(\w+)`: ", re.MULTILINE)
"""An argument in the text of a docstring, such as "`due_at`: Unix time"."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NODES_WITH_RULES = (ast.Name, ast.stmt, ast.arg, ast.IfExp, *COMPREHENSIONS)
"""Nodes that `Form.add` reads. Most nodes are others."""


@dataclass
class Form:
    """The form of the product's code: counts, and the places that break a rule."""

    statements: int = 0
    conditional_expressions: int = 0
    comprehensions: int = 0
    nested_conditional_expressions: list[str] = field(default_factory=list)
    comprehensions_with_two_loops: list[str] = field(default_factory=list)
    loops_with_conditions: list[str] = field(default_factory=list)
    """Loops over a conditional expression."""
    empty_names: list[str] = field(default_factory=list)
    vague_names: list[str] = field(default_factory=list)
    participles: list[str] = field(default_factory=list)
    """Functions that are named by one participle."""
    inline_arguments: list[str] = field(default_factory=list)
    """Functions whose docstring describes an argument outside of a section `Args:`."""
    errors_with_commands: list[str] = field(default_factory=list)
    """Errors whose text has a command."""
    messages_with_options: list[str] = field(default_factory=list)
    """Messages that name an option of a command."""
    numbers_without_docstring: list[str] = field(default_factory=list)
    """Constants of modules that are numbers, without a docstring or a comment."""
    tests_without_check: list[str] = field(default_factory=list)
    pure_modules: int = 0
    """Modules whose docstring says that they are pure."""
    impure_imports: list[str] = field(default_factory=list)
    """Imports of these modules that read or change something outside of the program."""
    _annotated: set[ast.AST] = field(default_factory=set)
    """Fields, and variables with a type."""

    def add(self, node: ast.AST, path: Path) -> None:
        name = name_bound_by(node)
        if name in EMPTY_NAMES:
            self.empty_names.append(f"{relative(path)}:{getattr(node, 'lineno', 0)}")
        elif name in VAGUE_NAMES and is_variable(node) and node not in self._annotated:
            self.vague_names.append(f"{relative(path)}:{getattr(node, 'lineno', 0)} {name}")
        if isinstance(node, ast.AnnAssign):
            self._annotated.add(node.target)
        if isinstance(node, ast.stmt):
            self.statements += 1
            self._add_text(node, path)
        if isinstance(node, ast.For):
            if any(isinstance(inner, ast.IfExp) for inner in ast.walk(node.iter)):
                self.loops_with_conditions.append(f"{relative(path)}:{node.lineno}")
        elif isinstance(node, ast.IfExp):
            self.conditional_expressions += 1
            parts = [node.test, node.body, node.orelse]
            if any(isinstance(inner, ast.IfExp) for part in parts for inner in ast.walk(part)):
                self.nested_conditional_expressions.append(f"{relative(path)}:{node.lineno}")
        elif isinstance(node, COMPREHENSIONS):
            self.comprehensions += 1
            if len(node.generators) > 1:
                self.comprehensions_with_two_loops.append(f"{relative(path)}:{node.lineno}")

    def add_module(self, path: Path) -> None:
        """Read a module of the product."""
        source = path.read_text()
        tree = ast.parse(source)
        self.add_nodes(tree, path)
        if "--" in source:  # in each option
            self.add_messages(tree, path)
        self.add_numbers(source, tree, path)
        self.add_imports(tree, path)

    def add_nodes(self, tree: ast.Module, path: Path) -> None:
        for node in ast.walk(tree):
            if isinstance(node, NODES_WITH_RULES):
                self.add(node, path)

    def add_tests(self, tree: ast.Module, path: Path) -> None:
        for test in functions_of_tests(tree):
            if not asserts(test) and not checks_something(test, tree):
                self.tests_without_check.append(f"{relative(path)}:{test.lineno}")

    def add_imports(self, tree: ast.Module, path: Path) -> None:
        """Read the imports of a module that is pure."""
        if "Pure." not in (ast.get_docstring(tree) or ""):
            return
        self.pure_modules += 1
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
        for name in sorted(names & OF_THE_WORLD):
            self.impure_imports.append(f"{relative(path)}: {name}")

    def add_messages(self, tree: ast.Module, path: Path) -> None:
        for line, text in messages_of(tree):
            is_message = len(text.split()) >= MIN_WORDS
            if is_message and OPTION.search(OPTION_OF_FIELD.sub("", COMMAND_IN_TEXT.sub("", text))):
                self.messages_with_options.append(f"{relative(path)}:{line}: {text}")

    def add_numbers(self, source: str, tree: ast.Module, path: Path) -> None:
        lines = source.splitlines()
        for place, name in undocumented_numbers(tree):
            if "#" not in lines[place - 1]:
                self.numbers_without_docstring.append(f"{relative(path)}:{place} {name}")

    def _add_text(self, node: ast.stmt, path: Path) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_participle(node.name) and not is_property(node):
                self.participles.append(f"{relative(path)}:{node.lineno} {node.name}")
            names = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
            if names & set(INLINE_ARGUMENT.findall(ast.get_docstring(node) or "")):
                self.inline_arguments.append(f"{relative(path)}:{node.lineno} {node.name}")
        elif isinstance(node, ast.Raise):
            text = "".join(texts_in(node))
            if "`handoff " in text:
                self.errors_with_commands.append(f"{relative(path)}:{node.lineno}: {text}")


def undocumented_numbers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each constant of a module that is a number and has no
    docstring. Constants on consecutive lines share the docstring below them.
    """
    undocumented: list[tuple[int, str]] = []
    end = 0
    for node in tree.body:
        if node.lineno != end + 1:
            yield from undocumented
            undocumented = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            undocumented = []
        end = node.end_lineno or node.lineno
        name = constant_bound_by(node)
        if name is not None:
            undocumented.append((node.lineno, name))
    yield from undocumented


def constant_bound_by(node: ast.stmt) -> str | None:
    """Return the name of the number that a statement defines."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            pass
        case _:
            return None
    numbers = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    is_number = all(isinstance(part, numbers) for part in ast.walk(value))
    constants = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
    is_number = is_number and all(type(constant) in (int, float) for constant in constants)
    if is_number and name.isupper():
        return name
    return None


def is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.arg)


def name_bound_by(node: ast.AST) -> str | None:
    """Return the name of the variable, the parameter or the function that a node defines."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name
    return None


@cache
def form(room: str) -> Form:
    """Read the code of a room once for all rules of its form."""
    counted = Form()
    for path in sources(room):
        counted.add_module(path)
    return counted


@cache
def form_of_tests() -> Form:
    """Read the code of tests and docs once for all rules."""
    counted = Form()
    for path in sources("tests", "docs"):
        text = path.read_text()
        may_break_a_rule = MAY_BREAK_A_RULE.search(text)
        if not may_break_a_rule and "def test_" not in text:
            continue
        tree = ast.parse(text)
        counted.add_tests(tree, path)
        if may_break_a_rule:
            counted.add_nodes(tree, path)
    return counted


def test_no_conditional_expression_contains_another() -> None:
    for room in PRODUCT:
        assert form(room).nested_conditional_expressions == []
    assert form_of_tests().nested_conditional_expressions == []


def test_no_loop_chooses_its_values_in_its_first_line() -> None:
    for room in PRODUCT:
        assert form(room).loops_with_conditions == []


def test_docstrings_describe_arguments_in_the_section_args() -> None:
    for room in PRODUCT:
        assert form(room).inline_arguments == []


def test_a_pure_module_imports_nothing_that_reads_or_changes_the_world() -> None:
    forms = [form(room) for room in PRODUCT]

    assert sum(each.pure_modules for each in forms) > 50
    for each in forms:
        assert each.impure_imports == []


def test_each_class_of_the_product_has_its_own_name() -> None:
    """A name that begins with `_` is known in its module only, so it may repeat."""
    places: dict[str, list[str]] = {}
    for path in sources(*PRODUCT):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(relative(path))

    assert [paths for paths in places.values() if len(paths) > 1] == []


def test_each_variable_has_a_name_for_its_value() -> None:
    for room in PRODUCT:
        assert form(room).empty_names == []
        assert form(room).vague_names == []
    assert form_of_tests().empty_names == []


IRREGULAR_PARTICIPLES = set(
    "begun bought bound broken brought built caught chosen drawn driven found frozen given gone"
    " grown held hidden kept known left lost made met paid proven said seen sent shown sold spent"
    " spoken stolen struck taken taught thought thrown told understood unknown unread won written"
    " unbegun unseen unsent unwritten".split()
)
NO_PARTICIPLES = {"bed", "embed", "led", "red", "shed"}
"""Words that end as a participle. Words such as `need` and `seed` end in "eed"."""


def is_participle(name: str) -> bool:
    """Return whether a name is one participle alone, such as `_kept` or `checked`."""
    word = name.strip("_")
    if word in IRREGULAR_PARTICIPLES:
        return True
    return re.fullmatch(r"[a-z]+[^e]ed", word) is not None and word not in NO_PARTICIPLES


@pytest.mark.parametrize("folder", PRODUCT)
def test_no_function_is_named_by_one_participle(folder: str) -> None:
    """A participle does not name the action or the result of a function. A property is read as a
    value, so it may have such a name.
    """
    assert form(folder).participles == []


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return bool(decorators & {"property", "cached_property", "functools.cached_property"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_kept", True),
        ("checked", True),
        ("_reordered", True),
        ("_checked_file", False),
        ("feed", False),
        ("embed", False),
        ("_read", False),
    ],
)
def test_only_participles_count_as_participles(name: str, expected: bool) -> None:
    assert is_participle(name) == expected


def test_constants_of_limits_begin_with_max_or_min() -> None:
    scripts = sorted((ROOT / "shared").rglob("*.lua"))
    others = [
        relative(path)
        for path in (*sources(*PRODUCT, "tests"), *scripts)
        if re.search(r"^(?:local )?_?(?:MOST|LEAST)_\w+ =", path.read_text(), re.MULTILINE)
    ]

    assert others == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_number_with_a_name_has_a_docstring(room: str) -> None:
    assert form(room).numbers_without_docstring == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('MAX_S = 5\n"""Seconds."""\n', []),
        ('A = 5\nB = 2 * 3\n"""Seconds."""\n', []),
        ("MAX_S = 5\n", ["MAX_S"]),
        ('MAX_S = 5\n\n"""A text about something else."""\n', ["MAX_S"]),
        ('NAME = "x"\n', []),
    ],
)
def test_a_number_without_a_docstring_is_found(source: str, expected: list[str]) -> None:
    assert [name for _, name in undocumented_numbers(ast.parse(source))] == expected


def test_a_comprehension_has_one_loop() -> None:
    for room in PRODUCT:
        assert form(room).comprehensions_with_two_loops == []


@pytest.mark.parametrize("room", PRODUCT)
def test_at_most_20_of_1_000_statements_have_a_conditional_expression(room: str) -> None:
    assert form(room).conditional_expressions <= form(room).statements * 20 / 1_000


@pytest.mark.parametrize("room", PRODUCT)
def test_at_most_25_of_1_000_statements_have_a_comprehension(room: str) -> None:
    assert form(room).comprehensions <= form(room).statements * 25 / 1_000


def test_most_lines_have_at_most_95_characters() -> None:
    lengths: list[int] = []
    for path in sources(*PRODUCT):
        lengths += [len(line) for line in path.read_text().splitlines() if line.strip()]

    assert sum(length <= 95 for length in lengths) >= 0.95 * len(lengths)


def test_no_line_of_a_lua_script_has_more_than_100_characters() -> None:
    long: list[str] = []
    for path in sorted((ROOT / "shared" / "store" / "lua").rglob("*.lua")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > 100:
                long.append(f"{relative(path)}:{number}")

    assert long == []
