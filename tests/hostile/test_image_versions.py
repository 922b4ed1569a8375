"""No image changes under an operator who installs the same release again."""

from __future__ import annotations

import re

import pytest

from deploy.sbom import base_image
from tests.docs.pages import ROOT, text_of
from tests.docs.test_compose_file import SERVICES

PINNED = re.compile(r"[a-z]+:\d+\.\d+\.\d+-\w+@sha256:[0-9a-f]{64}")
"""The tag of a patch release, which people read, and the digest, which Docker uses."""
OVERRIDDEN = re.compile(r"\$\{([A-Z]+_IMAGE):-(\S+)\}")
"""A variable of `.env` and its default."""
BUILD_ARGUMENTS = SERVICES["supervisor"]["build"]["args"]


def test_the_image_of_redis_has_the_digest_of_a_patch_release() -> None:
    image = OVERRIDDEN.fullmatch(SERVICES["redis"]["image"])

    assert image
    assert PINNED.fullmatch(image[2])


def test_the_base_image_has_the_digest_of_a_patch_release() -> None:
    image = base_image().reference

    assert PINNED.fullmatch(image)
    assert {"PYTHON_IMAGE": f"${{PYTHON_IMAGE:-{image}}}"} == BUILD_ARGUMENTS


def test_the_dockerfile_builds_on_no_other_image() -> None:
    lines = re.findall(r"^FROM .+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert lines == ["FROM ${PYTHON_IMAGE}"]


@pytest.mark.parametrize("variable", ["PYTHON_IMAGE", "REDIS_IMAGE"])
def test_the_docs_show_how_to_take_the_digest_of_another_release(variable: str) -> None:
    page = text_of("how-to/compose")
    name = variable.removesuffix("_IMAGE").lower()

    assert f"imagetools inspect {name}:" in page
    assert f"{variable}={name}:" in page
