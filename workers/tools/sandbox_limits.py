"""The limits of one run in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one run."""

    memory_bytes: int = 512_000_000
    """Memory of each process, and of all processes and files together."""
    cpu_s: int = 30
    """Processor time of each process."""
    seconds: int = 60
    processes: int = 32
    """Processes and threads."""
    open_files: int = 128
    file_bytes: int = 16_000_000
    """Size of each file, and of each folder in memory."""
    files: int = 10_000
    """Files, folders and links of all folders in memory together."""
    sockets: int = 32
    """Sockets of all processes together."""
    locks: int = 256
    """Locks of files that all processes hold together."""
    printed_bytes: int = 1_000_000
    """A run that prints more is ended."""
    kept_bytes: int = 20_000
    """Bytes of each of stdout and stderr in the result: the last ones."""
    output_files: int = 16
    output_bytes: int = 4_000_000
    """Bytes of all output files together."""

    @property
    def max_result_bytes(self) -> int:
        """Return the bytes of the longest result, with base64 and escapes."""
        return 2 * self.output_bytes + 12 * self.kept_bytes + 100_000
