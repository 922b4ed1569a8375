"""`python -m benchmarks.installs`: the number of packages and the megabytes of each way to
install the wheel.

Tests use `build_wheel` and the functions that make environments, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCES = ("handoff_queue", "pyproject.toml", "setup.py", "README.md")
"""Sources of a wheel."""
EXTRAS = ("", "cli", "worker", "all")
"""Installs that `main` measures. The empty one is the client's."""
_CONSTRAINTS = ("requirements.txt", "requirements-otel.txt")
"""The newest versions that the project was tested with."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.folder / "bin" / "python"

    def list_packages(self) -> dict[str, str]:
        """Return name -> version of its packages."""
        packages_json = run_uv("pip", "list", "--format", "json", "--python", str(self.python))
        packages: dict[str, str] = {}
        for package in json.loads(packages_json):
            packages[package["name"]] = package["version"]
        return packages

    def measure_size(self) -> float:
        """Return the size of its files without bytecode, links not followed, in millions of
        bytes.
        """
        files = (path for path in self.folder.rglob("*") if path.suffix != ".pyc")
        sizes = (path.lstat().st_size for path in files)
        return sum(sizes) / 1e6


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a copy of the sources, so that the clone gets no new files."""
    return build_wheel_of(copy_sources(folder), folder / "dist")


def copy_sources(folder: Path) -> Path:
    """Copy the sources of a wheel to a new folder in this folder, and return the new folder."""
    copy = folder / "sources"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    return copy


def build_wheel_of(sources: Path, target: Path) -> Path:
    """Build the wheel of these sources into the folder `target`."""
    run_uv("build", "--wheel", "--out-dir", str(target), str(sources))
    (wheel,) = target.glob("*.whl")
    return wheel


def install_newest(folder: Path, wheel: Path, extra: str = "") -> Environment:
    """Make an environment with the wheel and the newest tested versions of its packages."""
    environment = _make_environment(folder)
    if extra:
        requirement = f"handoff-queue[{extra}] @ {wheel.as_uri()}"
    else:
        requirement = str(wheel)
    pins: list[str] = []
    for name in _CONSTRAINTS:
        pins += ("--constraints", str(ROOT / name))
    run_uv("pip", "install", "--python", str(environment.python), *pins, requirement)
    return environment


def install_oldest(folder: Path, wheel: Path) -> Environment:
    """Make an environment with the wheel and the oldest versions that its base install allows."""
    environment = _make_environment(folder)
    python = ("--python", str(environment.python))
    pyproject = str(ROOT / "pyproject.toml")
    run_uv("pip", "install", *python, "--resolution", "lowest-direct", "--requirements", pyproject)
    run_uv("pip", "install", *python, str(wheel))
    return environment


def _make_environment(folder: Path) -> Environment:
    run_uv("venv", "--python", sys.executable, str(folder))
    return Environment(folder)


def run_uv(*arguments: str) -> str:
    """Run uv and return its output.

    Raises:
        RuntimeError: uv failed; with the end of its output.
    """
    uv = Path(sys.executable).with_name("uv")
    process = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(f"uv {arguments[0]} failed: {process.stderr[-2_000:]}")
    return process.stdout


def main() -> None:
    """Print a table."""
    print("| install | packages | MB |\n|---|---|---|")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(folder)
        for extra in EXTRAS:
            environment = install_newest(folder / f"with-{extra}", wheel, extra)
            name = "handoff-queue"
            if extra:
                name = f"handoff-queue[{extra}]"
            size = environment.measure_size()
            print(f"| `{name}` | {len(environment.list_packages())} | {size:.0f} |")


if __name__ == "__main__":
    main()
