"""The socket of a server."""

from __future__ import annotations

import errno
import ipaddress
import socket

from acts_celery.worker.errors import InfrastructureError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is a free one. Raises `InfrastructureError`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "something listens there already: choose another with --port N"
        elif error.errno == errno.EACCES:
            remedy = "that takes rights of its own: choose a port above 1023 with --port N"
        else:
            remedy = f"{error.strerror or error}: --host names an address of this machine"
        raise InfrastructureError(f"port {port} of {host} cannot be had: {remedy}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def address_of(listening: socket.socket, host: str) -> str:
    """The address that a browser on this machine opens."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
