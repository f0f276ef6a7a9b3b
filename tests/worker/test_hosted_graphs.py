"""Compiled graphs of LangGraph as they are, with the models that LangChain has for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from acts_celery import ActivitiesError, host_agent, local

from .test_hosted_agents import held, statuses

graphs: Any = pytest.importorskip("langgraph.graph")
prebuilt: Any = pytest.importorskip("langgraph.prebuilt")
types: Any = pytest.importorskip("langgraph.types")
messages: Any = pytest.importorskip("langchain_core.messages")
fakes: Any = pytest.importorskip("langchain_core.language_models.fake_chat_models")


@dataclass
class Odd:
    """An object that is no JSON value."""

    name: str


def scripted(*answers: str | list[tuple[str, dict[str, Any]]]) -> Any:
    """A node that asks a model of LangChain's for tests."""

    def message(at: int, answer: Any) -> Any:
        if isinstance(answer, str):
            return messages.AIMessage(answer)
        calls = [{"name": name, "args": given, "id": f"{at}.{n}"} for n, (name, given) in enumerate(answer)]
        return messages.AIMessage("", tool_calls=calls)

    model = fakes.GenericFakeChatModel(messages=iter(map(message, range(len(answers)), answers)))
    return lambda state: {"messages": [model.invoke(state["messages"])]}


def chain(**nodes: Any) -> Any:
    """A graph of nodes in a chain, not compiled."""
    graph = graphs.StateGraph(graphs.MessagesState)
    before = graphs.START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    return graph


def test_nodes_and_calls_of_tools_are_calls_and_done_once() -> None:
    ran: list[Any] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    def close(state: Any) -> Any:
        ran.append(len(state["messages"]))
        forgotten = [messages.RemoveMessage(message.id) for message in state["messages"][1:-1]]
        return types.Command(goto=graphs.END, update={"messages": forgotten})

    ask = scripted([("pay", {"amount": 900}), ("pay", {"amount": 7})], "Done. †{state.x}")
    graph = chain(ask=ask)
    graph.add_node("tools", prebuilt.ToolNode([pay]))
    graph.add_node("close", close)
    graph.add_conditional_edges("ask", prebuilt.tools_condition, {"tools": "tools", "__end__": "close"})
    graph.add_edge("tools", "ask")
    clerk = host_agent(graph.compile(name="clerk"), effects=["pay"], untrusted={"ask": "web"})
    with local([]) as client:
        run = client.submit_document(clerk.request("Pay."))
        first = held(run)
        assert first["untrusted"]["chosen"] == ["web"]
        run.approve(first, parameters={"amount": 90})
        run.reject(held(run), "not on a Sunday")
        result = run.wait()
    assert ran == [90, 5]
    done = [("ask", "done"), ("pay", "done"), ("pay", "failed"), ("clerk.failed", "done"), ("ask", "done")]
    assert statuses(result) == [*done, ("close", "done")]
    assert [message["content"] for message in result.output["messages"]] == ["Pay.", "Done. †{state.x}"]


def test_nodes_that_run_at_the_same_time_are_each_done_once() -> None:
    ran: list[str] = []

    def working(name: str) -> Any:
        async def work(state: Any) -> Any:
            ran.append(name)
            return {"messages": [name]}

        return work

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("last", working("last"))
    for name in ("left", "middle", "right"):
        graph.add_node(name, working(name))
        graph.add_edge(graphs.START, name)
    graph.add_edge(["left", "middle", "right"], "last")
    clerk = host_agent(graph.compile(name="clerk"))
    with local([]) as client:
        result = client.submit_document(clerk.request({"messages": []})).wait()
    assert [message["content"] for message in result.output["messages"]] == ran
    assert sorted(ran) == ["last", "left", "middle", "right"]


def test_a_node_whose_result_cannot_be_kept_fails_and_so_does_an_interrupt() -> None:
    def strange(state: Any) -> Any:
        return {"messages": [], "odd": Odd("one")}

    def interrupts(state: Any) -> Any:
        return types.interrupt("sure?")

    with local([]) as client:
        for node, word in ((strange, "cannot be kept"), (interrupts, "approve")):
            clerk = host_agent(chain(node=node).compile(name="clerk"))
            result = client.submit_document(clerk.request("Go.")).wait()
            assert result.status == "failed"
            assert word in json.dumps(result.to_dict())


def test_a_graph_that_stops_for_people_by_itself_is_refused() -> None:
    graph = chain(ask=scripted("Hello"))
    with pytest.raises(ActivitiesError, match="approve"):
        host_agent(graph.compile(name="clerk", interrupt_before=["ask"]))
