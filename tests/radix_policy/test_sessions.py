from __future__ import annotations

import numpy as np
import pytest

from evals.identity_quality import measure
from evals.mixes import Client, Writer, applications
from radix_policy.hashing import rolling
from radix_policy.sessions import SessionLinker

SYSTEM, ASSISTANT, USER, END = Writer(1).text(100), [1, 4], [1, 2], [3]


class Lab:
    """A linker under calls of written text; ``say`` links a prompt and finishes it."""

    def __init__(self, max_sessions: int = 100) -> None:
        self.gone: list[int] = []
        self.linker = SessionLinker(max_sessions, self.gone.append)
        self.writer = Writer(2)
        self.now = 0

    def arrive(self, prompt: list[int], agent: int = 0, key: str | None = None):
        self.now += 1
        H = rolling(np.array(prompt, dtype=np.int32))
        link = self.linker.link(H, len(SYSTEM), agent, self.now, key)
        self.linker.visit(link.session, agent, self.now)
        return link

    def finish(self, prompt: list[int], output: list[int], session: int) -> None:
        self.linker.leave(session)
        H = rolling(np.array(prompt + output, dtype=np.int32))
        self.linker.finish(H, len(prompt), session)

    def say(self, prompt, output, agent: int = 0, key: str | None = None):
        link = self.arrive(prompt, agent, key)
        self.finish(prompt, output, link.session)
        return link


@pytest.fixture
def lab() -> Lab:
    return Lab()


def first(lab: Lab, task: list[int] | None = None) -> list[int]:
    return SYSTEM + USER + (task or lab.writer.text(40)) + END + ASSISTANT


def test_a_prompt_that_continues_an_output_is_of_its_session(lab: Lab) -> None:
    prompt, output = first(lab), lab.writer.text(30)
    one = lab.say(prompt, output)
    other = lab.say(first(lab), lab.writer.text(30))
    again = lab.arrive(prompt + output + END + USER + lab.writer.text(20) + END + ASSISTANT)
    assert one.new and other.new and not again.new
    assert again.session == one.session != other.session


def test_equal_first_prompts_are_two_sessions(lab: Lab) -> None:
    prompt = first(lab)
    assert lab.say(prompt, lab.writer.text(30)).session != lab.arrive(prompt).session


def test_a_one_word_answer_is_continued_all_the_same(lab: Lab) -> None:
    prompt = first(lab)
    one = lab.say(prompt, [77])
    again = lab.arrive([*prompt, 77, *END, *USER, *lab.writer.text(9), *END, *ASSISTANT])
    assert again.session == one.session


def test_a_prompt_that_quotes_an_output_elsewhere_is_of_its_session(lab: Lab) -> None:
    output = lab.writer.text(40)
    one = lab.say(first(lab), output)
    quote = Writer(9).text(150) + USER + [55, 56] + output + END + ASSISTANT
    assert lab.arrive(quote, agent=1).session == one.session


@pytest.mark.parametrize("kept", [slice(0, 60), slice(140, 200)], ids=["cut off", "stripped"])
def test_a_part_of_a_long_output_is_enough(lab: Lab, kept: slice) -> None:
    output = lab.writer.text(200)
    one = lab.say(first(lab), output)
    quote = Writer(9).text(150) + USER + output[kept] + END + ASSISTANT
    assert lab.arrive(quote, agent=1).session == one.session


def test_what_two_sessions_answered_alike_links_nothing(lab: Lab) -> None:
    answer = lab.writer.text(40)
    lab.say(first(lab), answer)
    lab.say(first(lab), answer)
    assert lab.arrive(Writer(9).text(150) + USER + answer + END + ASSISTANT, agent=1).new


def test_an_answer_that_repeats_its_prompt_is_no_evidence(lab: Lab) -> None:
    text = lab.writer.text(40)
    lab.say(first(lab, text), text)
    lab.say(first(lab, text), lab.writer.text(40))
    assert lab.arrive(Writer(9).text(150) + USER + text + END + ASSISTANT, agent=1).new


def test_the_tasks_own_wording_leads_a_new_agent_to_its_session(lab: Lab) -> None:
    task = lab.writer.text(80)
    one = lab.say(first(lab, task), [77])
    lab.say(first(lab), [78])
    assert lab.arrive(Writer(9).text(150) + USER + task + END + ASSISTANT, 1).session == one.session


def test_a_session_with_a_call_under_way_is_not_guessed(lab: Lab) -> None:
    task = lab.writer.text(80)
    lab.arrive(first(lab, task))
    assert lab.arrive(Writer(9).text(150) + USER + task + END + ASSISTANT, agent=1).new


def test_a_session_found_in_two_halves_is_merged_into_the_older(lab: Lab) -> None:
    prompt, early, late = first(lab), lab.writer.text(60), lab.writer.text(60)
    one = lab.say(prompt, early)
    two = lab.say(Writer(9).text(120) + USER + lab.writer.text(50) + END + ASSISTANT, late, 1)
    assert two.session != one.session
    link = lab.arrive(prompt + early + END + USER + late + END + ASSISTANT)
    assert link.merged == ((two.session, one.session),)
    assert lab.linker.root(two.session) == one.session == link.session


def test_a_prompt_that_gathers_two_sessions_alike_is_a_new_one_and_merges_nothing(lab: Lab) -> None:
    outputs = [lab.writer.text(60), lab.writer.text(60)]
    sessions = [lab.say(first(lab), output).session for output in outputs]
    link = lab.arrive(Writer(9).text(150) + USER + outputs[0] + END + outputs[1] + END, agent=1)
    assert link.new and not link.merged
    assert [lab.linker.root(s) for s in sessions] == sessions


def test_a_routing_key_links_only_after_it_has_proved_to_be_a_sessions(lab: Lab) -> None:
    def agree(key: str) -> None:
        prompt, output = first(lab), lab.writer.text(30)
        lab.say(prompt, output, key=key)
        lab.say(prompt + output + END + USER + [9] + ASSISTANT, lab.writer.text(30), key=key)

    one = lab.say(first(lab), [77], key="a")
    stranger = Writer(9).text(150) + ASSISTANT
    assert lab.say(stranger, [78], agent=1, key="a").session != one.session
    for k in range(12):
        agree(f"k{k}")
    one = lab.say(first(lab), [77], key="b")
    assert lab.arrive(Writer(6).text(150) + ASSISTANT, agent=1, key="b").session == one.session


def turns(lab: Lab, count: int) -> list[list[int]]:
    """Prompts of one conversation that all end in other words: a reminder, a cut block."""
    said, prompts = first(lab, lab.writer.text(300)), []
    for _ in range(count):
        prompts.append(said + lab.writer.text(90))
        said = said + lab.writer.text(120)
    return prompts


def test_prompts_that_prolong_each_other_are_linked_once_they_have_kept_doing_so(lab: Lab) -> None:
    early = [lab.say(prompt, [77]).session for prompt in turns(lab, 3)]
    assert len(set(early)) == 3
    for _ in range(12):
        for prompt in turns(lab, 3):
            lab.say(prompt, [77])
    late = [lab.say(prompt, [77]).session for prompt in turns(lab, 3)]
    assert len(set(late)) == 1


@pytest.mark.parametrize("task", [40, 700], ids=["short tasks", "long tasks"])
def test_prompts_that_share_an_anchor_not_yet_known_are_no_conversation(
    lab: Lab, task: int
) -> None:
    anchors = [SYSTEM + lab.writer.text(800) for _ in range(24)]
    for _ in range(5):
        for anchor in anchors:
            assert lab.say(anchor + USER + lab.writer.text(task) + ASSISTANT, [77]).new


def test_agents_that_come_and_go_leave_a_bounded_trace(lab: Lab) -> None:
    for agent in range(1100):
        lab.say([5, agent], [6], agent=agent)
    assert len(lab.linker._chains) == 1024


def test_forgotten_sessions_are_announced_and_never_linked_to(lab: Lab) -> None:
    lab.linker._max = 3
    prompt, output = first(lab), lab.writer.text(30)
    one = lab.say(prompt, output)
    for _ in range(3):
        lab.say(first(lab), lab.writer.text(30))
    assert lab.gone == [one.session] and len(lab.linker) == 3
    again = lab.arrive(prompt + output + END + USER + lab.writer.text(20) + END + ASSISTANT)
    assert again.new and again.session != one.session


def test_a_prompt_without_text_and_an_empty_answer_do_no_harm(lab: Lab) -> None:
    link = lab.say([], [])
    assert link.new
    assert lab.say([5], [6]).new


CLIENTS = {
    "team": Client(),
    "rewrapped": Client(own_rewrapped=True),
    "thinking": Client(stripped=0.6),
    "chat": Client(agents=1),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_sessions_of_usual_clients_are_found_without_ids(name: str) -> None:
    quality, _ = measure(applications([CLIENTS[name]] * 2, 12, seed=3), live=12)
    assert quality.right >= 0.9
    assert quality.wrong <= 0.02
    assert quality.joined <= 0.1
