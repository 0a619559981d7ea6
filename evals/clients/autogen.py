"""AutoGen: a SelectorGroupChat whose next speaker comes from its ``selector_func``."""

from __future__ import annotations

import httpx2
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from evals.clients.plan import ROLES, ToolUse, prompts
from evals.clients.run import Options, main
from evals.clients.session import SessionRun
from evals.clients.wire import AsyncTap

_MODEL = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    structured_output=False,
    family=ModelFamily.UNKNOWN,
)
_MOST_TOOLS = 8


async def run_session(run: SessionRun, options: Options) -> None:
    """One group chat from the task to the last turn of the plan."""

    def decide(agent: str, text: str) -> ToolUse | None:
        return run.next_use()

    client = OpenAIChatCompletionClient(
        model="default",
        base_url=options.url,
        api_key="none",
        model_info=_MODEL,
        max_tokens=options.max_tokens,
        temperature=0,
        stream_options={"include_usage": True},
        http_client=httpx2.AsyncClient(transport=AsyncTap(run, decide), timeout=options.timeout),
        **({"extra_body": run.extra_body} if run.extra_body else {}),
    )
    agents = [
        AssistantAgent(
            role,
            client,
            tools=run.tools.of(role),
            description=f"The {role} of the visitor office.",
            system_message=prompts()[role],
            model_client_stream=True,
            max_tool_iterations=_MOST_TOOLS,
        )
        for role in ROLES
    ]
    team = SelectorGroupChat(
        agents,
        client,
        selector_func=lambda messages: run.next_role(),
        allow_repeated_speaker=True,
        max_turns=len(run.plan.turns),
    )
    try:
        async for _ in team.run_stream(task=run.plan.task):
            pass
    finally:
        await client.close()


if __name__ == "__main__":
    raise SystemExit(main("autogen", run_session))
