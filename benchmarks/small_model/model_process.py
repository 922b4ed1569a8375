"""Starts the process of the model, and completes prompts with a grammar or a schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleets import ROOT

PACKAGES = ROOT / ".venv" / "small_model"
"""Folder in which `.ci/install small-model` installs the model and llama.cpp."""
TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a completion."""

    text: str
    tokens: int = 0
    """Tokens of the whole completion; 0 before its end."""
    is_cut: bool = False
    """True if the completion reached its length limit."""


@dataclass(frozen=True, slots=True)
class SmallModel:
    """The client of a running model."""

    url: str
    temperature: float

    def count(self, prompt: str) -> int:
        """Return the tokens of a prompt."""
        body = {"content": prompt, "add_special": False, "parse_special": True}
        with self._post("/tokenize", body) as reply:
            return len(json.load(reply)["tokens"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)

    def complete(self, prompt: str, max_tokens: int, seed: int, **rule: Any) -> Iterator[Piece]:
        """Yield the completion of a prompt.

        Args:
            rule: `grammar` in the form of llama.cpp, or `json_schema`, or nothing.
        """
        body = {
            "prompt": prompt,
            "n_predict": max_tokens,
            "temperature": self.temperature,
            "seed": seed,
            "stream": True,
            **rule,
        }
        with self._post("/completion", body) as reply:
            for line in reply:
                if line.startswith(b"data: "):
                    data = json.loads(line.removeprefix(b"data: "))
                    is_end = data.get("stop", False)
                    yield Piece(
                        data["content"],
                        data["tokens_predicted"] if is_end else 0,
                        is_cut=is_end and data["stop_type"] == "limit",
                    )

    def choose(self, prompt: str, options: list[str], seed: int) -> str:
        """Return the option with which the model continues a prompt."""
        if len(options) == 1:
            return options[0]
        grammar = "root ::= " + " | ".join(map(json.dumps, options))
        pieces = self.complete(prompt, 64, seed, grammar=grammar)
        text = "".join(piece.text for piece in pieces)
        return text if text in options else options[0]


@contextmanager
def small_model(temperature: float) -> Iterator[SmallModel]:
    """Start the model, and stop it after the `with` block.

    Raises:
        SystemExit: the packages are not installed, or the model does not start.
    """
    if not (PACKAGES / "xllamacpp").is_dir():
        raise SystemExit("the model is not installed: run `.ci/install small-model`")
    script = Path(__file__).with_name("llama_process.py")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                log.seek(0)
                raise SystemExit(log.read().decode(errors="replace")[-2_000:])
            yield SmallModel(url, temperature)
        finally:
            process.kill()
            process.wait()
