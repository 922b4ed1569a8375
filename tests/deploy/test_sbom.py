"""The bills of materials list each pinned package and its dependencies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.sbom import (
    REQUIREMENTS,
    MissingPackage,
    Pin,
    all_pins,
    base_image,
    bill_of_image,
    bill_of_wheel,
    component,
    main,
)
from tests.docs.pages import ROOT

LINE = re.compile(r"^([a-z0-9.-]+)==(\S+)(?: ; (.+))?$", re.MULTILINE)
PINNED = {
    f"pkg:pypi/{name}@{version}": marker
    for file in REQUIREMENTS
    for name, version, marker in LINE.findall((ROOT / file).read_text())
}


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    return bill_of_image()


@pytest.fixture(scope="module")
def wheel() -> dict[str, Any]:
    return bill_of_wheel()


def purls(bill: dict[str, Any]) -> set[str]:
    return {entry["purl"] for entry in bill["components"]}


@pytest.mark.slow
def test_each_pinned_package_is_in_the_bill_of_the_wheel(wheel: dict[str, Any]) -> None:
    assert len(PINNED) > 90
    assert purls(wheel) == set(PINNED)


def test_each_pinned_package_of_linux_is_in_the_bill_of_the_image(image: dict[str, Any]) -> None:
    foreign = r"== 'win32'|== 'emscripten'|< '3\.11\.3'|< '3\.12'"
    others = {purl for purl, marker in PINNED.items() if re.search(foreign, marker)}

    assert purls(image) - {base_image().purl} == set(PINNED) - others


def test_the_image_installs_the_files_that_the_bill_lists() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()

    (command,) = re.findall(r"^RUN pip install (-r .+)$", dockerfile, re.MULTILINE)
    assert command.replace("-r ", "").split() == list(REQUIREMENTS)
    assert base_image().reference in dockerfile


def test_something_needs_each_component(image: dict[str, Any]) -> None:
    needed = {purl for entry in image["dependencies"] for purl in entry["dependsOn"]}

    assert needed == purls(image)


def test_the_extras_of_the_wheel_are_optional(wheel: dict[str, Any]) -> None:
    scopes = {entry["name"]: entry["scope"] for entry in wheel["components"]}

    assert (scopes["celery"], scopes["kombu"], scopes["hiredis"]) == ("required",) * 3
    assert (scopes["anthropic"], scopes["fastapi"], scopes["flower"]) == ("optional",) * 3


def test_each_package_of_the_image_has_a_licence(image: dict[str, Any]) -> None:
    without = [entry["name"] for entry in image["components"] if not entry.get("licenses")]

    assert without == ["python"], "only the base image has none"


def test_a_version_that_is_not_installed_is_refused() -> None:
    with pytest.raises(MissingPackage, match=r"celery \S+ is installed, not 1\.0"):
        component(Pin("celery", "1.0", in_image=True), required=True)


@pytest.mark.slow
def test_both_files_are_the_same_each_time(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        main(tmp_path / folder)

    for name in ("image.cdx.json", "wheel.cdx.json"):
        first, second = ((tmp_path / folder / name).read_text() for folder in ("first", "second"))
        assert first == second
        bill = json.loads(first)
        assert bill["bomFormat"] == "CycloneDX"
        assert len(bill["components"]) >= len([pin for pin in all_pins() if pin.in_image])
