"""LangGraph in one process with its in-memory checkpointer: a graph of five nodes, one thread for each instance."""

from __future__ import annotations

import uuid
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.benchmarks.jobs import Figures, rate, serve


class State(TypedDict):
    number: int


def add_one(state: State) -> State:
    return {"number": state["number"] + 1}


def main() -> None:
    builder = StateGraph(State)
    before = START
    for step in range(5):
        builder.add_node(f"step{step}", add_one)
        builder.add_edge(before, f"step{step}")
        before = f"step{step}"

    def chain(size: int) -> Figures:
        graph = builder.compile(checkpointer=InMemorySaver())
        settings = [{"configurable": {"thread_id": uuid.uuid4().hex}} for _ in range(size)]

        def work() -> object:
            found = graph.batch([{"number": n} for n in range(size)], settings)
            return [state["number"] for state in found]

        return rate(size, work, [n + 5 for n in range(size)])

    serve({"chain": chain})


if __name__ == "__main__":
    main()
