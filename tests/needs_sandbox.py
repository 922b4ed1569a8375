"""A mark for tests that run code in a sandbox. `.ci/install-bubblewrap` prepares a machine."""

import shutil

import pytest

NEEDS_SANDBOX = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
