"""TLS in front of a server, as stunnel or a load balancer does it: the server of the tests' wheel speaks none."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tls_in_front_of(port: int, certificate: Path, key: Path, *, asks_for: Path | None = None) -> Iterator[int]:
    """The port of this machine on which TLS leads to a port without it; with `asks_for` clients show a certificate that
    this authority has signed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if asks_for is not None:
        context.load_verify_locations(asks_for)
        context.verify_mode = ssl.CERT_REQUIRED
    loop = asyncio.new_event_loop()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, into = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, into), pass_on(behind, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    loop.set_exception_handler(lambda *_: None)  # a client that refuses the certificate is what is tested
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
