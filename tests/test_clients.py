"""What the agent frameworks share: tools, plans, and how their calls are told apart."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from evals.clients import identity
from evals.clients.judge import judge
from evals.clients.plan import ROLES, make_plans, prompts, role_in, tasks
from evals.clients.record import turns_of, write_trace
from evals.clients.session import ModelCall, SessionRun
from evals.clients.tools import TOOLS_OF, Toolbox
from scout_sglang.embedded import embedded_model_path
from tests.tiny_model import whole_words


@pytest.fixture
def tools():
    return Toolbox()


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("2*18.40+11.60", "2*18.40+11.60 = 48.4"),
        ("-(3-1)/4", "-(3-1)/4 = -0.5"),
        ("1/0", "division by zero"),
        ("2**99", "Cannot calculate '2**99': only numbers, + - * / and parentheses are known"),
        ("open('x')", "only numbers"),
        ("True+1", "only numbers"),
        ("1+", "Cannot calculate"),
    ],
)
def test_the_calculator_knows_arithmetic_and_nothing_else(tools, expression, answer):
    assert answer in tools.calculate(expression)


@given(st.text(max_size=40))
def test_the_calculator_answers_whatever_it_is_asked(expression):
    assert Toolbox().calculate(expression)


def test_a_search_quotes_page_line_and_text(tools):
    assert tools.search_files("FRESNEL").startswith("exhibits.md:3: Room 1")
    assert "No line" in tools.search_files("submarine")
    assert tools.read_page("exhibits.md", 3).splitlines()[0].startswith("Room 1")
    assert "There is no page '../tasks.json'" in tools.read_page("../tasks.json", 1)


def test_notes_are_found_by_their_words_and_stay_in_their_session(tools):
    tools.save_note("Groups", "ten or more adults pay less")
    tools.save_note("Dogs", "stay outside")
    assert tools.search_notes("what do adults pay").startswith("Groups: ")
    assert "Replaced" in tools.save_note("Dogs", "guide dogs are welcome")
    assert "No note" in Toolbox().search_notes("adults")
    assert tools.used == {"save_note": 3, "search_notes": 1}


def test_equal_seeds_give_equal_plans_and_others_do_not():
    assert make_plans("x", 5, 1, "selector") == make_plans("x", 5, 1, "selector")
    assert make_plans("x", 5, 1, "selector") != make_plans("x", 5, 2, "selector")
    with pytest.raises(ValueError, match="--routing must be one of pipeline"):
        make_plans("x", 5, 1, "straight")


@given(st.integers(0, 1000), st.sampled_from(["pipeline", "debate", "selector", "random"]))
def test_a_plan_never_hands_over_to_who_is_speaking_and_its_tools_can_be_called(seed, routing):
    [plan] = make_plans("x", 1, seed, routing)
    toolbox = Toolbox()
    assert all(one.role != two.role for one, two in zip(plan.turns, plan.turns[1:], strict=False))
    for turn in plan.turns:
        able = {tool.__name__: tool for tool in toolbox.of(turn.role)}
        for use in turn.uses:
            inspect.signature(able[use.name]).bind(**use.arguments)
            assert "Cannot calculate" not in able[use.name](**use.arguments)


def test_every_search_and_page_of_a_task_is_there(tools):
    for task in tasks():
        for words in task["search"]:
            assert "No line" not in tools.search_files(words), words
        assert "There is no" not in tools.read_page(task["page"], 1)


def test_an_agent_is_known_by_its_prompt_however_it_is_wrapped():
    assert all(role_in(f"# Preamble\n{text}\nTools:") == role for role, text in prompts().items())
    assert role_in("You are a helpful assistant.") is None
    assert set(TOOLS_OF) == set(ROLES)


def test_a_turn_lasts_from_its_first_request_to_its_last_answer():
    calls = [
        ModelCall("planner", 10.0, False, latency_ms=500),
        ModelCall("analyst", 11.0, False, latency_ms=1000),
        ModelCall("analyst", 13.0, False, latency_ms=500),
    ]
    assert turns_of(calls) == [500, 2500]


def recorded(path, sessions=6):
    """A client's trace made without a server: anchors, then the session's growing history."""
    runs = []
    for number, plan in enumerate(make_plans("x", sessions, 3, "selector")):
        run = SessionRun(plan, ids=False)
        history = [1000 * (number + 1) + i for i in range(60)]
        for turn, step in enumerate(plan.turns):
            anchor = [1 + ROLES.index(step.role)] * 120
            fresh = [20_000 + 997 * number + 31 * turn + i for i in range(12)]
            run.calls.append(
                ModelCall(
                    step.role,
                    started=number + 7.0 * turn,
                    has_session=False,
                    prompt=anchor + history,
                    output=fresh,
                    latency_ms=900,
                )
            )
            history = history + fresh + [40_000 + 13 * number + i for i in range(9)]
        runs.append(run)
    assert write_trace(path, "x", runs) == sessions
    return identity.read([path])


def test_recorded_sessions_and_agents_are_recognised_without_ids(tmp_path):
    sessions = recorded(tmp_path / "x.jsonl")
    observer = identity.observe(sessions)
    quality = observer.quality()
    assert observer.sessions.total() == sum(len(session.calls) for session in sessions)
    assert quality.right > 0.9
    assert quality.wrong == 0


def test_a_trace_is_judged_at_a_share_of_its_working_set(tmp_path):
    sessions = recorded(tmp_path / "x.jsonl")
    found = judge(sessions, 0.5, ["lru", "scout", "belady"])
    tokens = found["recomputed_tokens"]
    assert found["capacity"] <= found["working_set"]
    assert tokens["belady"] <= min(tokens["lru"], tokens["scout"])
    assert max(tokens.values()) < found["prompt_tokens"]


def test_whole_words_read_back_as_the_same_tokens():
    tokenizer = Tokenizer.from_file(f"{embedded_model_path()}/tokenizer.json")
    words, rng = np.flatnonzero(whole_words()), np.random.default_rng(0)
    for _ in range(50):
        answer = rng.choice(words, 24).tolist()
        assert tokenizer.encode(tokenizer.decode(answer)).ids == answer
