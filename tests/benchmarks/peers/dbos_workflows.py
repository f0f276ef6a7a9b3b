"""DBOS with its default database, SQLite: a workflow of one step for each instance."""

from __future__ import annotations

import tempfile

from dbos import DBOS

from tests.benchmarks.jobs import Figures, rate, serve


@DBOS.step()
def add_one(number: int) -> int:
    return number + 1


@DBOS.workflow()
def one(number: int) -> int:
    return int(add_one(number))


def one_call(size: int) -> Figures:
    def work() -> object:
        return [handle.get_result() for handle in [DBOS.start_workflow(one, n) for n in range(size)]]

    return rate(size, work, [n + 1 for n in range(size)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/dbos.sqlite"
        DBOS(config={"name": "bench", "system_database_url": database, "log_level": "ERROR"})
        DBOS.launch()
        serve({"one_call": one_call})
        DBOS.destroy()


if __name__ == "__main__":
    main()
