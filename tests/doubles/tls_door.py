"""A door with TLS before a port of this machine, as stunnel makes one: not every Redis is built with TLS of its own.

    python -m tests.doubles.tls_door OWN_PORT PORT_BEHIND CERTIFICATE KEY

Who comes in must show a certificate that the door's own has signed.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

HOST = "localhost"
"""The name that certificates are made for."""


def a_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Of `HOST`, signed by itself, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    whose = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{HOST}"]
    command = ["openssl", "req", "-x509", *how, *whose, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def stand_open(own_port: str, port: str, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with await asyncio.start_server(partial(_let_in, int(port)), "127.0.0.1", int(own_port), ssl=context) as server:
        await server.serve_forever()


async def _let_in(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        inside_reader, inside_writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(inside_writer):
            await asyncio.wait(
                [asyncio.ensure_future(_carry(reader, inside_writer)), asyncio.ensure_future(_carry(inside_reader, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65_536):
            target.write(chunk)
            await target.drain()


if __name__ == "__main__":
    asyncio.run(stand_open(*sys.argv[1:]))
