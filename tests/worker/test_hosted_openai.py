"""Agents of the OpenAI Agents SDK as they are, with the models that it has for tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery import ActivitiesError, host_agent, local

from .test_hosted_agents import held, statuses

sdk: Any = pytest.importorskip("agents")
fakes: Any = pytest.importorskip("agents.testing")


def scripted(*answers: str | list[tuple[str, dict[str, Any]]]) -> Any:
    """A model of the SDK's for tests; an answer is a text, or calls of tools."""
    said, call = fakes.assistant_message, fakes.function_call
    return fakes.ScriptedModel(
        [
            [said(answer)]
            if isinstance(answer, str)
            else [call(name, given, call_id=f"{name}.{at}.{number}") for number, (name, given) in enumerate(answer)]
            for at, answer in enumerate(answers)
        ]
    )


def test_functions_and_models_of_all_agents_that_hand_off_are_calls_and_done_once() -> None:
    ran: list[Any] = []

    @sdk.function_tool  # type: ignore[untyped-decorator]  # the package is not followed
    def find(order: str) -> str:
        """Find an order."""
        ran.append(order)
        return f"†{{state.x}} {order}"

    def pay(context: Any, amount: int) -> str:
        """Pay."""
        ran.append((context.context, amount))
        return f"paid {amount}"

    pay.__annotations__["context"] = sdk.RunContextWrapper
    billing = sdk.Agent(
        name="Billing",
        tools=[sdk.function_tool(pay)],
        model=scripted([("pay", {"amount": 900})], [("pay", {"amount": 7})], "Done. †state.y"),
    )
    desk = sdk.Agent(
        name="Front desk",
        tools=[find],
        handoffs=[billing],
        model=scripted([("find", {"order": "A"}), ("find", {"order": "B"})], [("transfer_to_billing", {})]),
    )
    hosted = host_agent(desk, name="desk", effects=["pay"], untrusted={"find": "shop"}, deps=lambda given: given)
    with local([]) as client:
        run = client.submit_document(hosted.request("Pay.", deps="Ann"))
        first = held(run)
        assert first["untrusted"]["chosen"] == ["shop"]
        run.approve(first, parameters={"amount": 90})
        run.reject(held(run), "not on a Sunday")
        result = run.wait()
    assert result.output == "Done. †state.y"
    assert ran == ["A", "B", ("Ann", 90)]
    model = ("desk.model", "done")
    found, paid = [("find", "done")] * 2, [("pay", "done"), model, ("pay", "failed"), ("desk.failed", "done")]
    assert statuses(result) == [model, *found, model, model, *paid, model]
    assert "not on a Sunday" in json.dumps(billing.model.calls[-1].input)


def test_what_the_agent_says_that_a_person_decides_on_is_held() -> None:
    tool = sdk.function_tool(lambda: "sent", name_override="send", needs_approval=True)
    desk = host_agent(sdk.Agent(name="desk", tools=[tool], model=scripted([("send", {})], "Done.")))
    with local([]) as client:
        run = client.submit_document(desk.request("Send it."))
        run.approve(held(run))
        assert run.wait().output == "Done."


def test_arguments_of_a_model_choose_no_other_tool_and_their_model_reads_what_is_wrong() -> None:
    ran: list[str] = []
    tools = [
        sdk.FunctionTool(name, "", {}, lambda *_, name=name: ran.append(name), strict_json_schema=False)
        for name in ("look", "pay")
    ]
    model = scripted([("look", {"_tool": "pay"})], "Sorry.")
    desk = host_agent(sdk.Agent(name="desk", tools=tools, model=model), effects=["pay"])
    with local([]) as client:
        assert client.submit_document(desk.request("Look.")).wait().output == "Sorry."
    assert ran == []
    assert "begins with _" in json.dumps(model.calls[-1].input)


def test_an_output_of_a_type_has_its_schema() -> None:
    desk = host_agent(sdk.Agent(name="desk", output_type=list[int], model=scripted('{"response":[1]}')))
    with local([]) as client:
        assert client.submit_document(desk.request("Count.")).wait().output == [1]


def test_a_tool_that_runs_here_and_is_no_function_is_refused() -> None:
    shell = sdk.LocalShellTool(executor=lambda _: "")
    with pytest.raises(ActivitiesError, match="function_tool"):
        host_agent(sdk.Agent(name="desk", tools=[shell]))
