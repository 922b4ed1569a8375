"""No image changes under an operator who installs the same release again."""

from __future__ import annotations

import re

import pytest

from deploy.sbom import base_image
from tests.docs.pages import ROOT, text_of
from tests.docs.test_compose_file import SERVICES

PATCH_RELEASE = re.compile(r"[a-z]+:\d+\.\d+\.\d+-\w+")
OVERRIDDEN = re.compile(r"\$\{([A-Z]+_IMAGE):-(\S+)\}")
"""A variable of `.env` and its default."""
BUILD_ARGUMENTS = SERVICES["supervisor"]["build"]["args"]


def test_the_image_of_redis_has_the_tag_of_a_patch_release() -> None:
    image = OVERRIDDEN.fullmatch(SERVICES["redis"]["image"])

    assert image
    assert PATCH_RELEASE.fullmatch(image[2])


def test_the_base_image_has_the_tag_of_a_patch_release() -> None:
    assert PATCH_RELEASE.fullmatch(base_image())
    assert {"PYTHON_IMAGE": f"${{PYTHON_IMAGE:-{base_image()}}}"} == BUILD_ARGUMENTS


def test_the_dockerfile_builds_on_no_other_image() -> None:
    lines = re.findall(r"^FROM .+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert lines == ["FROM ${PYTHON_IMAGE}"]


@pytest.mark.parametrize("variable", ["PYTHON_IMAGE", "REDIS_IMAGE"])
def test_the_docs_pin_the_digest_of_the_image_that_the_files_name(variable: str) -> None:
    page = text_of("how-to/compose")
    used = {"PYTHON_IMAGE": base_image(), "REDIS_IMAGE": SERVICES["redis"]["image"]}[variable]
    default = OVERRIDDEN.sub(r"\2", used)

    assert f"imagetools inspect {default} " in page
    assert f"{variable}={default}@sha256:" in page
