"""smolagents: the planner manages the other five as its team, each with a history of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx2
from rich.console import Console
from smolagents import AgentLogger, LogLevel, OpenAIServerModel, Tool, ToolCallingAgent

from evals.clients.plan import ROLES, ToolUse, prompts
from evals.clients.run import Options, main
from evals.clients.session import SessionRun
from evals.clients.wire import Tap

_MANAGER = "planner"
_MOST_STEPS = 60
_TYPES = {"str": "string", "int": "integer"}


async def run_session(run: SessionRun, options: Options) -> None:
    """One run of the manager from the task to its final answer; smolagents blocks a thread."""
    await asyncio.to_thread(_run, run, options)


def _run(run: SessionRun, options: Options) -> None:
    def decide(agent: str, text: str) -> ToolUse | None:
        answer = ToolUse("final_answer", {"answer": text.strip() or "Done."})
        if use := run.next_use():
            return use
        if agent != _MANAGER:
            return answer
        while (role := run.next_role()) == _MANAGER:
            if use := run.next_use():
                return use
        # A manager words the task itself: what the model said goes to the worker with it.
        return ToolUse(role, {"task": f"{text.strip()} {run.plan.task}"}) if role else answer

    http = httpx2.Client(transport=Tap(run, decide), timeout=options.timeout)
    model = OpenAIServerModel(
        "default",
        options.url,
        "none",
        client_kwargs={"http_client": http},
        max_tokens=options.max_tokens,
        temperature=0,
        # Its own "required" would have the server force a call out of a model that cannot.
        tool_choice="auto",
        **({"extra_body": run.extra_body} if run.extra_body else {}),
    )
    workers = [_agent(role, run, model) for role in ROLES if role != _MANAGER]
    with http:
        state = _agent(_MANAGER, run, model, workers).run(run.plan.task, return_full_result=True)
    if state.state != "success":
        raise RuntimeError(f"smolagents ended with {state.state!r} instead of 'success'")


def _agent(
    role: str, run: SessionRun, model: OpenAIServerModel, team: list[ToolCallingAgent] | None = None
) -> ToolCallingAgent:
    return ToolCallingAgent(
        tools=[_tool(function) for function in run.tools.of(role)],
        model=model,
        managed_agents=team,
        instructions=prompts()[role],
        name=role,
        description=f"The {role} of the visitor office.",
        stream_outputs=True,
        max_steps=_MOST_STEPS,
        # Streamed text is drawn on the console at any level.
        logger=AgentLogger(LogLevel.OFF, Console(quiet=True)),
    )


def _tool(function: Callable[..., str]) -> Tool:
    """The function as smolagents wants tools: a class, with a description of each argument."""
    said = inspect.getdoc(function) or ""
    told = dict(
        line.strip().split(": ", 1) for line in said.partition("Args:")[2].strip().splitlines()
    )
    kinds = inspect.signature(function).parameters
    members: dict[str, Any] = {
        "name": function.__name__,
        "description": said.splitlines()[0],
        "inputs": {
            name: {"type": _TYPES[str(kind.annotation)], "description": told[name]}
            for name, kind in kinds.items()
        },
        "output_type": "string",
        "skip_forward_signature_validation": True,
        "forward": lambda self, *args, **kwargs: function(*args, **kwargs),
    }
    return type(f"{function.__name__}_tool", (Tool,), members)()


if __name__ == "__main__":
    raise SystemExit(main("smolagents", run_session))
