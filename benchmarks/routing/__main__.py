"""`python -m benchmarks.routing`: the router, compared with one agent for all requests and a
team for all requests; `--wrong` lists the wrong routes (tuned part).
"""

from __future__ import annotations

import argparse

from benchmarks.routing.measuring import (
    ALWAYS_SINGLE,
    ALWAYS_TEAM,
    RoutedRequest,
    compute_specialist_accuracy,
    compute_way_accuracy,
    load_labels,
    route_requests,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    labels = load_labels()
    ways = {
        "router": list(route_requests(labels)),
        "always single": list(map(ALWAYS_SINGLE, labels)),
        "always team": list(map(ALWAYS_TEAM, labels)),
    }
    print(
        "| requests | | route right | specialist right, where one is | calls a request"
        " |\n|---|---|---|---|---|"
    )
    for part, values in (("tuned", (False,)), ("held out", (True,)), ("all", (False, True))):
        for name, results in ways.items():
            _print_row(part, name, [each for each in results if each.label.held_out in values])
    if options.wrong:
        for each in ways["router"]:
            if not each.label.held_out and not each.is_right:
                expected = each.label.specialist or "a team"
                actual = "a team" if each.route.team else each.route.specialist
                print(
                    f"\n{each.label.request[:120]}\n  is for {expected}, went to {actual}:"
                    f" {each.route.why}"
                )


def _print_row(part: str, name: str, results: list[RoutedRequest]) -> None:
    calls = sum(each.calls for each in results) / len(results)
    print(
        f"| {len(results)} {part} | {name} | {compute_way_accuracy(results):.1%} |"
        f" {compute_specialist_accuracy(results):.1%} | {calls:.2f} |"
    )


if __name__ == "__main__":
    main()
