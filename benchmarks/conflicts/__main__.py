"""`python -m benchmarks.conflicts`: how many planted contradictions are found, and what is taken for one; `--wrong` lists both."""

from __future__ import annotations

import argparse

from benchmarks.conflicts.measuring import labelled, measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    result, claims = measured(), labelled()[0]
    print("| planted | consistent claims | recall | false alarms |\n|---|---|---|---|")
    print(f"| {len(result.planted)} | {result.consistent} | {result.recall:.1%} | {len(result.false_alarms)} |")
    if options.wrong:
        for name, pairs in (("missed", result.missed), ("false alarm", result.false_alarms)):
            for pair in sorted(map(sorted, pairs)):
                print(f"\n{name}: " + "\n  ".join(str(claims[one].model_dump(exclude_none=True, exclude={"text"})) for one in pair))


if __name__ == "__main__":
    main()
