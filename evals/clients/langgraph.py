"""LangGraph: a graph of six agents and their tools, routed by conditional edges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from evals.clients.plan import ROLES, ToolUse, prompts
from evals.clients.run import Options, main
from evals.clients.session import SessionRun
from evals.clients.wire import AsyncTap

_MOST_STEPS = 200


async def run_session(run: SessionRun, options: Options) -> None:
    """One run of the graph from the task to the last turn of the plan."""

    def decide(agent: str, text: str) -> ToolUse | None:
        return run.next_use()

    http = httpx2.AsyncClient(transport=AsyncTap(run, decide), timeout=options.timeout)
    model = ChatOpenAI(
        model="default",
        base_url=options.url,
        api_key="none",
        max_tokens=options.max_tokens,
        temperature=0,
        streaming=True,
        stream_usage=True,
        http_async_client=http,
        extra_body=run.extra_body or None,
    )
    async with http:
        graph = _graph(run, model)
        begin = {"messages": [HumanMessage(run.plan.task)]}
        config = {"recursion_limit": _MOST_STEPS}
        async for _ in graph.astream(begin, config, stream_mode="messages"):
            pass


def _graph(run: SessionRun, model: ChatOpenAI) -> Any:
    builder = StateGraph(MessagesState)

    def route(state: MessagesState) -> str:
        return run.next_role() or END

    def after(role: str) -> Callable[[MessagesState], str]:
        def tools_or_next(state: MessagesState) -> str:
            last = state["messages"][-1]
            called = isinstance(last, AIMessage) and last.tool_calls
            return f"{role}_tools" if called else route(state)

        return tools_or_next

    for role in ROLES:
        builder.add_node(role, _agent(role, run, model))
        builder.add_node(f"{role}_tools", ToolNode(run.tools.of(role)))
        builder.add_edge(f"{role}_tools", role)
        builder.add_conditional_edges(role, after(role), [f"{role}_tools", *ROLES, END])
    builder.add_conditional_edges(START, route, [*ROLES, END])
    return builder.compile()


def _agent(
    role: str, run: SessionRun, model: ChatOpenAI
) -> Callable[[MessagesState], Awaitable[dict[str, Any]]]:
    able = model.bind_tools(run.tools.of(role))

    async def speak(state: MessagesState) -> dict[str, Any]:
        reply = await able.ainvoke([SystemMessage(prompts()[role]), *state["messages"]])
        return {"messages": [reply]}

    return speak


if __name__ == "__main__":
    raise SystemExit(main("langgraph", run_session))
