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
"""Name in the certificates."""
ADDRESS = "127.0.0.1"
INSIDE = "127.0.0.2"


def a_certificate(
    folder: Path, name: str, alternative_name: str = f"DNS:{HOST}"
) -> tuple[Path, Path]:
    """Make a self-signed certificate and its key.

    `alternative_name`: the name or address in the certificate.
    """
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    key_options = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    name_options = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative_name}"]
    command = [
        "openssl",
        "req",
        "-x509",
        *key_options,
        *name_options,
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def serve(certificate: str, key: str, *pairs: str) -> None:
    """Run a proxy for each `OWN_PORT:PORT_BEHIND` until the process ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with AsyncExitStack() as servers:
        for own_port, port in (map(int, pair.split(":")) for pair in pairs):
            tls_server = await servers.enter_async_context(
                await asyncio.start_server(partial(_forward, port), ADDRESS, 0, ssl=context)
            )
            tls_port = tls_server.sockets[0].getsockname()[1]
            await servers.enter_async_context(
                await asyncio.start_server(partial(_receive, tls_port, port), ADDRESS, own_port)
            )
        await asyncio.Event().wait()


async def _receive(
    tls_port: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    host, _ = writer.get_extra_info("peername")
    await _forward(port if host == INSIDE else tls_port, reader, writer)


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        server_reader, server_writer = await asyncio.open_connection(ADDRESS, port)
        with closing(server_writer):
            await asyncio.wait(
                [
                    asyncio.ensure_future(_copy(reader, server_writer)),
                    asyncio.ensure_future(_copy(server_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65_536):
            target.write(chunk)
            await target.drain()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
