"""Run the programs that a test names, one after the other, in one process of a user's service.

Each line of stdin is a JSON list: the URL of Redis, the path of a program, and its arguments. The
answer is a line: the program's output as a JSON string.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
from contextlib import redirect_stdout

if __name__ == "__main__":
    for line in sys.stdin:
        os.environ["HANDOFF_REDIS_URL"], *sys.argv = json.loads(line)
        with redirect_stdout(io.StringIO()) as output:
            runpy.run_path(sys.argv[0], run_name="__main__")
        print(json.dumps(output.getvalue()), flush=True)
