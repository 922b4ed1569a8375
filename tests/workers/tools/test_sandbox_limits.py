"""The memory of a process in a sandbox is read from its folder in /proc."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.workers.tools.sandbox_limits import measure_memory

KIB = 1_024
STATUS = "Name:\tcode\nVmRSS:\t     100 kB\nVmPTE:\t      10 kB\nVmSwap:\t    1000 kB\n"


def process(folder: Path, **files: str) -> Path:
    """Write files of /proc, and return their folder."""
    for name, text in {"status": STATUS, "maps": "", **files}.items():
        (folder / name).write_text(text)
    return folder


def test_pages_in_swap_and_page_tables_are_memory(tmp_path: Path) -> None:
    assert measure_memory(process(tmp_path), exact=False) == 1_110 * KIB


def test_a_shared_page_is_divided_in_an_exact_measurement(tmp_path: Path) -> None:
    shares = "Rss:\t     100 kB\nPss:\t      50 kB\nPss_Anon:\t 50 kB\nSwapPss:\t 500 kB\n"

    assert measure_memory(process(tmp_path, smaps_rollup=shares), exact=True) == 560 * KIB


def test_each_mapping_costs_memory_of_the_kernel(tmp_path: Path) -> None:
    single = measure_memory(process(tmp_path, maps="0-1 r--p\n"), exact=False)
    thousand = measure_memory(process(tmp_path, maps="0-1 r--p\n" * 1_001), exact=False)

    assert thousand - single == 1_000 * KIB
