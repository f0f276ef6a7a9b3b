"""The conversation of `tests.benchmarks.conversation` in LangGraph with its SQLite checkpointer.

    python -m tests.benchmarks.peers.langgraph_conversation TICKS PROMPT_BYTES RESULT_BYTES FOLDER [delta]

prints what it cost, as JSON. With `delta` the messages are in a `DeltaChannel`, otherwise as LangGraph's own
`MessagesState` keeps them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, tools_condition


class Deltas(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


def main() -> None:
    ticks, prompt_bytes, result_bytes = map(int, sys.argv[1:4])
    file = Path(sys.argv[4]) / "checkpoints.sqlite"
    spent: list[float] = []

    def page(number: int) -> str:
        """A page of a document."""
        return (f"{number} " * result_bytes)[:result_bytes]

    def ask(state: dict[str, Any]) -> dict[str, Any]:
        spent.append(1000 * time.process_time())
        tick = sum(isinstance(message, ToolMessage) for message in state["messages"])
        call: Any = {"name": "page", "args": {"number": tick}, "id": str(tick)}
        return {"messages": [AIMessage("" if tick < ticks else str(tick), tool_calls=[call] if tick < ticks else [])]}

    builder: Any = StateGraph(Deltas if sys.argv[5:] == ["delta"] else MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([page]))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", tools_condition)
    builder.add_edge("tools", "ask")
    before = _moved()
    with SqliteSaver.from_conn_string(str(file)) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "one"}, "recursion_limit": 2 * ticks + 10}
        asked = {"messages": [{"role": "user", "content": "x" * prompt_bytes}]}
        answer = graph.invoke(asked, config, durability="sync")["messages"][-1].content
        assert answer == str(ticks), answer
    received, sent = (after - at for at, after in zip(before, _moved(), strict=True))
    log = sum(path.stat().st_size for path in file.parent.iterdir())
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"log": log, "sent": sent, "received": received, "spent": spent, "memory": memory}))


def _moved() -> tuple[int, int]:
    """The bytes that this process has read and written."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


if __name__ == "__main__":
    main()
