"""Dask's distributed scheduler on a local cluster: no broker, nothing outlives it."""

from __future__ import annotations

from dask.distributed import Client

from tests.benchmarks.jobs import Figures, rate, serve


def add_one(number: int) -> int:
    return number + 1


def main() -> None:
    # Its web page is the one thing of a local cluster that would listen on a fixed port.
    with Client(dashboard_address=None) as client:

        def one_call(size: int) -> Figures:
            def work() -> object:
                return client.gather(client.map(add_one, range(size), pure=False))

            return rate(size, work, [n + 1 for n in range(size)])

        serve({"one_call": one_call})


if __name__ == "__main__":
    main()
