"""Build the package into an empty folder. pyproject.toml holds the rest of the configuration.

setuptools keeps `build/lib` in a clone and adds all of its files to the next wheel. So the second
`pip install CLONE` would install modules and specialists that a new version has removed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithoutOldFiles(build_py):
    """The step that copies the package into `build/lib`."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "handoff_queue", ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildWithoutOldFiles})
