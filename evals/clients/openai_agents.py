"""OpenAI Agents SDK: each agent hands the conversation off to the next one."""

from __future__ import annotations

import httpx2
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.extensions.handoff_prompt import prompt_with_handoff_instructions
from openai import AsyncOpenAI

from evals.clients.plan import ROLES, ToolUse, prompts
from evals.clients.run import Options, main
from evals.clients.session import SessionRun
from evals.clients.wire import AsyncTap

_MOST_STEPS = 200


async def run_session(run: SessionRun, options: Options) -> None:
    """One run of the SDK from the task to the last turn of the plan."""

    def decide(agent: str, text: str) -> ToolUse | None:
        if use := run.next_use():
            return use
        role = run.next_role()
        return ToolUse(f"transfer_to_{role}", {}) if role else None

    http = httpx2.AsyncClient(transport=AsyncTap(run, decide), timeout=options.timeout)
    client = AsyncOpenAI(base_url=options.url, api_key="none", http_client=http)
    model = OpenAIChatCompletionsModel("default", client)
    settings = ModelSettings(
        temperature=0,
        max_tokens=options.max_tokens,
        include_usage=True,
        extra_body=run.extra_body or None,
    )
    agents = {
        role: Agent(
            role,
            instructions=prompt_with_handoff_instructions(prompts()[role]),
            handoff_description=f"The {role} of the visitor office.",
            tools=[function_tool(tool) for tool in run.tools.of(role)],
            model=model,
            model_settings=settings,
        )
        for role in ROLES
    }
    for role, agent in agents.items():
        agent.handoffs = [other for name, other in agents.items() if name != role]
    async with http:
        started = Runner.run_streamed(
            agents[run.next_role() or ROLES[0]],
            run.plan.task,
            max_turns=_MOST_STEPS,
            run_config=RunConfig(tracing_disabled=True),
        )
        async for _ in started.stream_events():
            pass


if __name__ == "__main__":
    raise SystemExit(main("openai_agents", run_session))
