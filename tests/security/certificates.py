"""Authorities and certificates, made by openssl for the time of a test."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True)
class Authority:
    """Who signs certificates."""

    certificate: Path
    key: Path


def authority(folder: Path) -> Authority:
    """A new authority, which nobody knows."""
    folder.mkdir()
    made = Authority(folder / "ca.crt", folder / "ca.key")
    _openssl("req", "-x509", *_NEW, made.key, "-out", made.certificate, "-days", "1", "-subj", f"/CN={folder.name}")
    return made


def certificate(signer: Authority, folder: Path, *, name: str = "localhost") -> tuple[Path, Path]:
    """A server's certificate and key for a name."""
    made, key, request, extensions = (folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr", "ext"))
    extensions.write_text(f"subjectAltName=DNS:{name}\n")
    _openssl("req", *_NEW, key, "-out", request, "-subj", f"/CN={name}")
    by = ("-CA", signer.certificate, "-CAkey", signer.key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *by, "-out", made, "-days", "1", "-extfile", extensions)
    return made, key


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
