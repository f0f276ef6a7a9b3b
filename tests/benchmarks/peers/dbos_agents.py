"""An agent of pydantic-ai on DBOS with SQLite, by pydantic-ai's own capability: the agent of hosted_agent.py.

With `step` behind it the tool is rewritten as a step of DBOS; without it the agent is as it was.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from tests.worker.fixtures.ten_steps import FOLDER, answered, refund


def answer(messages: Any, info: Any) -> ModelResponse:
    told = [str(part.content) for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    orders = answered(sum(isinstance(each, ModelResponse) for each in messages))
    calls = [ToolCallPart("refund", {"order": order}) for order in orders]
    return ModelResponse(parts=calls or [TextPart(", ".join(told))])


async def refund_them(order: str) -> str:
    """Refund an order."""
    return refund(order)


async def main() -> None:
    DBOS(config={"name": "clerk", "system_database_url": f"sqlite:///{FOLDER}/dbos.sqlite"})
    tool = DBOS.step(name="refund")(refund_them) if sys.argv[1:] == ["step"] else refund_them
    agent = Agent(FunctionModel(answer), name="clerk", capabilities=[DBOSDurability()])
    agent.tool_plain(tool, name="refund")

    @DBOS.workflow(name="go")
    async def go(prompt: str) -> str:
        return str((await agent.run(prompt)).output)

    DBOS.launch()
    with SetWorkflowID("one"):
        handle = await DBOS.start_workflow_async(go, "Refund them.")
    print(await handle.get_result())


if __name__ == "__main__":
    asyncio.run(main())
