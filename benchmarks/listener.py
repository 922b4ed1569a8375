"""`python -m benchmarks.listener URL`: hears all task events, as Flower does, and makes nothing of them. Says `ready`, and ends with its
input.
"""

from __future__ import annotations

import os
import sys
import threading

import redis


def main() -> None:
    threading.Thread(target=_end_with_input, daemon=True).start()
    with redis.Redis.from_url(sys.argv[1]) as client, client.pubsub() as events:
        events.psubscribe("*celeryev*")
        for heard in events.listen():
            if heard["type"] == "psubscribe":
                print("ready", flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
