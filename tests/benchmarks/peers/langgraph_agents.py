"""A graph of LangGraph with its SQLite checkpointer: the graph of hosted_graph.py.

With `async` behind it the checkpoints are written as LangGraph does by default, without it before each next step.
"""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.worker.fixtures.ten_steps import FOLDER, answered, refund


def ask(state: MessagesState) -> dict[str, Any]:
    told = [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]
    orders = answered(sum(isinstance(message, AIMessage) for message in state["messages"]))
    calls: list[Any] = [{"name": "refund", "args": {"order": order}, "id": order} for order in orders]
    return {"messages": [AIMessage("" if calls else ", ".join(told), tool_calls=calls)]}


def main() -> None:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([refund]))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", tools_condition)
    builder.add_edge("tools", "ask")
    durability: Any = "async" if sys.argv[1:] == ["async"] else "sync"
    with SqliteSaver.from_conn_string(str(FOLDER / "checkpoints.sqlite")) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "one"}}
        first = None if saver.get_tuple(config) else {"messages": [{"role": "user", "content": "Refund them."}]}
        print(graph.invoke(first, config, durability=durability)["messages"][-1].content)


if __name__ == "__main__":
    main()
