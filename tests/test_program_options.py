"""A program of the repository reads only options that its `argparse` parser declares."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "chaos", "deploy", "docs", "tests")
PROGRAM = """
import argparse
def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--least-cached", type=int)
    parser.add_argument("rows")
    return parser.parse_args()
def main():
    options = parsed()
    print(options.rows, READ)
"""
Functions = ast.FunctionDef | ast.AsyncFunctionDef


def programs() -> list[Path]:
    """Return the files that build a parser."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ".add_argument(" in path.read_text() and path != Path(__file__)
    ]


@pytest.mark.parametrize("path", programs(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_reads_only_options_that_it_declares(path: Path) -> None:
    tree = ast.parse(path.read_text())
    read = set(options_read(tree))

    assert read, "the program reads none of its options"
    assert read - declared_options(tree) == set()


@pytest.mark.parametrize("path", programs(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_number_of_a_program_has_bounds(path: Path) -> None:
    """A table of no job, or of -1 runs, would be empty and look like a success."""
    unbounded: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=name), *_]
            ):
                kinds = [ast.unparse(word.value) for word in node.keywords if word.arg == "type"]
                if kinds in (["int"], ["float"]) and name not in ("--seed", "--temperature"):
                    unbounded.append(str(name))

    assert unbounded == []


@pytest.mark.parametrize(
    ("module", "arguments", "problem"),
    [
        ("benchmarks.tokens.__main__", ["--rows", "nonsense"], "no name contains 'nonsense'"),
        ("benchmarks.tokens.__main__", ["--model", "nonsense"], "the prices of 'nonsense' are not"),
        ("benchmarks.__main__", ["--rows", "nonsense"], "no name contains 'nonsense'"),
        ("benchmarks.__main__", ["--repeats", "0"], "'0' is not a whole number from 1 on"),
        ("benchmarks.growth.__main__", ["--queued", "-1"], "not a whole number from 0 on"),
        (
            "benchmarks.growth.__main__",
            ["--rows", "--queued", "0", "--finished", "0"],
            "leave nothing to measure",
        ),
        ("benchmarks.small_model.__main__", ["--cases", "nonsense"], "choose from "),
    ],
)
def test_a_benchmark_that_would_measure_nothing_is_refused_in_one_line(
    module: str,
    arguments: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *arguments])

    with pytest.raises(SystemExit) as end:
        importlib.import_module(module).main()

    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ""
    assert problem in printed.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("read", "undeclared"),
    [
        ("options.least_cached", set()),
        ("options.min_cached", {"min_cached"}),
        ("parser.parse_args().cached", {"cached"}),
    ],
)
def test_an_option_that_is_not_declared_is_found(read: str, undeclared: set[str]) -> None:
    tree = ast.parse(PROGRAM.replace("READ", read))

    assert set(options_read(tree)) - declared_options(tree) == undeclared


def declared_options(tree: ast.Module) -> set[str]:
    """Return the attributes that the calls of `add_argument` declare."""
    declared: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keywords):
                given = {keyword.arg: keyword.value for keyword in keywords}
                flags = [str(name.value) for name in names if isinstance(name, ast.Constant)]
                long = [flag for flag in flags if flag.startswith("--")] or flags
                dest = given.get("dest")
                declared.add(
                    str(dest.value)
                    if isinstance(dest, ast.Constant)
                    else long[0].lstrip("-").replace("-", "_")
                )
    return declared


def options_read(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes that the program reads from the parsed options."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Functions)]
    parsing = {function.name for function in functions if returns_options(function)}
    for scope in (tree, *functions):
        names = names_of_options(scope, parsing)
        for node in ast.walk(scope):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=option) if name in names:
                    yield option
                case ast.Attribute(value=ast.Call() as call, attr=option):
                    if is_parsing(call, parsing):
                        yield option


def names_of_options(scope: ast.Module | Functions, parsing: set[str]) -> set[str]:
    """Return the variables and parameters of a scope that hold the parsed options."""
    names: set[str] = set()
    statements: Iterable[ast.AST] = scope.body
    if isinstance(scope, Functions):
        statements = ast.walk(scope)
        for argument in scope.args.args:
            if argument.annotation and "Namespace" in ast.unparse(argument.annotation):
                names.add(argument.arg)
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                if is_parsing(call, parsing):
                    names.add(name)
    return names


def returns_options(function: Functions) -> bool:
    """Return whether a function parses the command line and returns all options."""
    if function.returns is not None and "Namespace" in ast.unparse(function.returns):
        return True
    for node in ast.walk(function):
        match node:
            case ast.Return(value=ast.Call() as call) if is_parsing(call, set()):
                return True
    return False


def is_parsing(call: ast.Call, parsing: set[str]) -> bool:
    """Return whether a call returns the parsed options. `parsing`: functions that return them."""
    match call.func:
        case ast.Attribute(attr="parse_args"):
            return True
        case ast.Name(id=name):
            return name in parsing
    return False
