"""TLS proxies for ports of this machine, like stunnel, because not every Redis is built with TLS.

    python -m tests.doubles.tls_proxy CERTIFICATE KEY OWN_PORT:PORT_BEHIND...

A client must show a certificate that the proxy's certificate has signed. Clients from `INSIDE`
connect without TLS: replicas and sentinels of such a Redis speak no TLS, and use the same addresses
as all clients.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path

HOST = "localhost"
"""The name that certificates are made for."""
ADDRESS = "127.0.0.1"
INSIDE = "127.0.0.2"


def a_certificate(folder: Path, name: str, holds: str = f"DNS:{HOST}") -> tuple[Path, Path]:
    """Make a self-signed certificate and its key.

    `holds`: the name or address in the certificate.
    """
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    whose = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={holds}"]
    command = [
        "openssl",
        "req",
        "-x509",
        *how,
        *whose,
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def stand_open(certificate: str, key: str, *doors: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with AsyncExitStack() as open_doors:
        for own_port, port in (map(int, door.split(":")) for door in doors):
            lock = await open_doors.enter_async_context(
                await asyncio.start_server(partial(_let_in, port), ADDRESS, 0, ssl=context)
            )
            lock_port = lock.sockets[0].getsockname()[1]
            await open_doors.enter_async_context(
                await asyncio.start_server(partial(_receive, lock_port, port), ADDRESS, own_port)
            )
        await asyncio.Event().wait()


async def _receive(
    lock_port: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    whence, _ = writer.get_extra_info("peername")
    await _let_in(port if whence == INSIDE else lock_port, reader, writer)


async def _let_in(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        inside_reader, inside_writer = await asyncio.open_connection(ADDRESS, port)
        with closing(inside_writer):
            await asyncio.wait(
                [
                    asyncio.ensure_future(_carry(reader, inside_writer)),
                    asyncio.ensure_future(_carry(inside_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65_536):
            target.write(chunk)
            await target.drain()


if __name__ == "__main__":
    asyncio.run(stand_open(*sys.argv[1:]))
