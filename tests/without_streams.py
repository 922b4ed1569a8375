"""Run `python -m MODULE` as an interpreter that starts with closed standard streams.

`python -m tests.without_streams NUMBERS MODULE ARGUMENT...`: `NUMBERS` are descriptors, such as
`12` for stdout and stderr. A forked process cannot start without a stream.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Close the streams, and run the module as `__main__`."""
    _, numbers, module, *arguments = sys.argv
    for number in map(int, numbers):
        os.close(number)
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)
    sys.argv = ["-m", *arguments]
    sys.modules.pop(module, None)  # the fork server may have imported it as another module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
