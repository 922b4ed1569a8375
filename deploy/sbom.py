"""Writes the software bills of materials of the image and of the wheel, in CycloneDX's JSON.

    python -m deploy.sbom build/sbom

The versions are the pins of the requirements files. The licences and the dependencies are the
metadata of the installed packages, so the pinned versions must be installed. The packages of
the image's base system are not listed: only a scanner with the image can list them.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = "handoff-queue"
REQUIREMENTS = ("requirements.txt", "requirements-otel.txt")
"""Files of pins: the image installs both, and the extras of the wheel need no other package."""
IMAGE_ENVIRONMENT = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.12",
    "python_version": "3.12",
    "sys_platform": "linux",
}
"""Values of the markers in the image."""
NAMESPACE = uuid.UUID("5c6ac3f5-8d5f-4a09-9a4b-6a2f2cb1d0c4")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of a requirements file."""

    name: str
    version: str
    in_image: bool
    """True if the markers of the line hold in the image."""


class MissingPackage(Exception):
    """A pinned version is not installed, so its metadata is unknown."""


def read_pins(text: str) -> list[Pin]:
    """Return the pins of a requirements file in order."""
    pins: list[Pin] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        in_image = not requirement.marker or requirement.marker.evaluate(IMAGE_ENVIRONMENT)
        pins.append(Pin(canonicalize_name(requirement.name), specifier.version, in_image))
    return pins


def all_pins() -> list[Pin]:
    """Return the pins of both files."""
    pins: list[Pin] = []
    for name in REQUIREMENTS:
        pins += read_pins((ROOT / name).read_text())
    return pins


class BaseImage(NamedTuple):
    """The image that the Dockerfile builds on."""

    name: str
    tag: str
    sha256: str
    """Its digest in 64 hexadecimal digits."""

    @property
    def reference(self) -> str:
        """The image as the Dockerfile names it."""
        return f"{self.name}:{self.tag}@sha256:{self.sha256}"

    @property
    def purl(self) -> str:
        return f"pkg:docker/{self.name}@sha256:{self.sha256}?tag={self.tag}"


def base_image() -> BaseImage:
    """Return the image that the Dockerfile builds on."""
    pattern = r"^ARG PYTHON_IMAGE=(\w+):([\w.-]+)@sha256:([0-9a-f]{64})$"
    match = re.search(pattern, (ROOT / "Dockerfile").read_text(), re.M)
    assert match, "the Dockerfile names its base image with its digest in an argument"
    return BaseImage(*match.groups())


def graph(extras: Iterable[str]) -> dict[str, set[str]]:
    """Return the dependencies of the project with these extras: name -> names it needs."""
    edges: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    open_ones = [(PROJECT, extra) for extra in ("", *extras)]
    while open_ones:
        name, extra = open_ones.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        needed = edges.setdefault(name, set())
        for line in described(name).get_all("Requires-Dist") or []:
            requirement = Requirement(line)
            environment = IMAGE_ENVIRONMENT | {"extra": extra}
            if requirement.marker and not requirement.marker.evaluate(environment):
                continue
            other = canonicalize_name(requirement.name)
            if other != name:
                needed.add(other)
            open_ones += [(other, more) for more in ("", *requirement.extras)]
    return edges


@cache
def described(name: str) -> metadata.PackageMetadata:
    """Return the metadata of an installed package.

    Raises:
        MissingPackage: the package is not installed.
    """
    try:
        return metadata.metadata(name)
    except metadata.PackageNotFoundError as error:
        raise MissingPackage(f"{name} is not installed; `make check` installs it") from error


def licences(name: str) -> list[Json]:
    """Return the licences of an installed package, in CycloneDX's form."""
    fields = described(name)
    if expressions := fields.get_all("License-Expression"):
        return [{"expression": expressions[0]}]
    classifiers = fields.get_all("Classifier") or []
    names = [text.split(" :: ")[-1] for text in classifiers if text.startswith("License ::")]
    if not names:
        names = [text for text in fields.get_all("License") or [] if "\n" not in text]
    return [{"license": {"name": name}} for name in names]


def component(pin: Pin, required: bool) -> Json:
    """Return the entry of one package.

    Raises:
        MissingPackage: another version is installed.
    """
    purl = f"pkg:pypi/{pin.name}@{pin.version}"
    entry: Json = {
        "type": "library",
        "bom-ref": purl,
        "name": pin.name,
        "version": pin.version,
        "scope": "required" if required else "optional",
        "purl": purl,
    }
    if pin.in_image:
        installed = described(pin.name)["Version"]
        if installed != pin.version:
            raise MissingPackage(f"{pin.name} {installed} is installed, not {pin.version}")
        if names := licences(pin.name):
            entry["licenses"] = names
    return entry


def bill(subject: Json, components: list[Json], edges: Mapping[str, set[str]]) -> Json:
    """Return a bill of materials. Equal contents have an equal serial number."""
    references = {entry["name"]: entry["bom-ref"] for entry in (subject, *components)}
    dependencies: list[Json] = []
    for name, reference in references.items():
        needed = [references[other] for other in edges.get(name, ()) if other in references]
        dependencies.append({"ref": reference, "dependsOn": sorted(needed)})
    content = json.dumps([subject, components, dependencies])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": dependencies,
    }


def _subject(kind: str) -> Json:
    version = described(PROJECT)["Version"]
    purl = f"pkg:pypi/{PROJECT}@{version}"
    return {"type": kind, "bom-ref": purl, "name": PROJECT, "version": version, "purl": purl}


def bill_of_wheel() -> Json:
    """Return the bill of the wheel. The packages of its extras have the scope `optional`."""
    needed = graph([])
    edges = graph(["all"])
    components = [component(pin, pin.name in needed) for pin in all_pins()]
    return bill(_subject("library"), components, edges)


def bill_of_image() -> Json:
    """Return the bill of the image: its Python packages and its base image."""
    image = base_image()
    base: Json = {
        "type": "container",
        "bom-ref": image.purl,
        "name": image.name,
        "version": image.tag,
        "purl": image.purl,
        "hashes": [{"alg": "SHA-256", "content": image.sha256}],
    }
    edges = graph(["all"])
    edges[PROJECT].add(image.name)
    packages = [component(pin, required=True) for pin in all_pins() if pin.in_image]
    return bill(_subject("container"), [base, *packages], edges)


def main(folder: Path) -> None:
    """Write both bills into a folder, and print their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("image", bill_of_image()), ("wheel", bill_of_wheel())):
        path = folder / f"{name}.cdx.json"
        path.write_text(json.dumps(content, indent=2) + "\n")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
