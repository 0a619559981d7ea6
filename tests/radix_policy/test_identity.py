from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import recorded

from evals.identity_quality import interleave, measure
from evals.mixes import Client, Writer, applications
from evals.recorded import load
from radix_policy.call import Call, Identified
from radix_policy.config import IdentityConfig
from radix_policy.identity import Identity

HEADER, SYSTEMS = Writer(1).text(48), [Writer(k).text(150) for k in (2, 3, 4)]


def prompt(system: int, *texts: list[int]) -> np.ndarray:
    return np.array(HEADER + SYSTEMS[system] + [t for text in texts for t in text], dtype=np.int32)


def replay(identity: Identity, seed: int = 0, table: np.ndarray | None = None) -> list[Identified]:
    """What ``identity`` makes of one small mix, its token ids sent through ``table``."""
    team = applications([Client(agents=3, turns=6), Client(agents=1, turns=4)], 6, seed)
    answers = []
    for now, (_, call) in enumerate(interleave(team, 4, seed), 1):
        tokens, output = call.prompt, call.output
        if table is not None:
            tokens, output = table[tokens], table[output]
        who = identity.identify(Call(tokens), now)
        identity.finish(who.session, who.agent, np.r_[tokens, output], len(tokens), now)
        answers.append(who)
    return answers


def kept_together(one: list[int], other: list[int]) -> float:
    """Share of the calls that the most frequent id in ``other`` for their id in ``one`` covers."""
    pairs = Counter(zip(one, other, strict=True))
    best: dict[int, int] = {}
    for (a, _), count in pairs.items():
        best[a] = max(best.get(a, 0), count)
    return sum(best.values()) / len(one)


def test_labels_win_over_all_that_the_tokens_say() -> None:
    identity, writer = Identity(IdentityConfig()), Writer(5)
    for now in range(12):
        who = identity.identify(Call(prompt(now % 3), agent="one", session="s"), now)
        assert (who.session, who.new_session) == (0, now == 0)
    other = identity.identify(Call(prompt(0), agent="two", session="t"), 12)
    assert other.new_session and other.agent != who.agent
    unlabelled = identity.identify(Call(prompt(1, writer.text(50))), 13)
    assert unlabelled.agent not in (who.agent, other.agent)
    assert unlabelled.session not in (who.session, other.session)


def test_the_anchor_of_a_named_agent_is_where_its_sessions_diverge() -> None:
    identity, writer = Identity(IdentityConfig()), Writer(5)
    for now in range(6):
        call = Call(prompt(0, [now], writer.text(50)), agent="one", session=f"s{now}")
        who = identity.identify(call, now)
    assert who.anchor == len(prompt(0))
    (report,) = identity.agent_report()
    assert report == (who.agent, "one", len(prompt(0)), len(prompt(0)), 6, 6)


def test_one_odd_prompt_moves_the_divergence_but_not_the_anchor() -> None:
    identity, writer = Identity(IdentityConfig()), Writer(5)
    for now in range(6):
        call = Call(prompt(0, [now], writer.text(50)), agent="one", session=f"s{now}")
        identity.identify(call, now)
    odd = np.r_[prompt(0)[:20], prompt(0)[30:]]
    who = identity.identify(Call(odd, agent="one", session="odd"), 7)
    (report,) = identity.agent_report()
    assert (who.anchor, report.divergence) == (len(prompt(0)), 20)


def test_an_inferred_agents_anchor_is_exact_to_the_token() -> None:
    identity, writer = Identity(IdentityConfig()), Writer(5)
    for now in range(60):
        texts = [now], writer.text(50)
        who = identity.identify(Call(prompt(now % 3, *texts), session=f"s{now // 6}"), now)
    assert who.anchor == len(prompt(2))
    assert sorted(r.calls for r in identity.agent_report())[-3:] >= [12, 12, 12]


def test_without_inference_only_labels_count() -> None:
    identity = Identity(IdentityConfig(infer=False))
    answers = replay(identity)
    assert len({a.session for a in answers}) == len(answers)
    assert {a.agent for a in answers} == {0}
    named = identity.identify(Call(prompt(0), agent="one", session="s"), 1000)
    again = identity.identify(Call(prompt(1), agent="one", session="s"), 1001)
    assert (named.session, named.agent) == (again.session, again.agent)
    assert named.agent != 0


def test_a_label_begins_anew_after_the_end_of_its_session() -> None:
    identity = Identity(IdentityConfig())
    one = identity.identify(Call(prompt(0), session="s"), 1)
    identity.end_session(one.session)
    two = identity.identify(Call(prompt(0), session="s"), 2)
    assert two.new_session and two.session != one.session
    identity.finish(one.session, one.agent, prompt(0), 10, 3)
    identity.end_session(one.session)
    assert identity.identify(Call(prompt(0), session="s"), 4).session == two.session


def test_a_call_that_never_finishes_leaves_the_next_ones_as_they_were() -> None:
    identity, writer = Identity(IdentityConfig()), Writer(5)
    identity.identify(Call(prompt(0, writer.text(60))), 1)
    text, output = writer.text(60), writer.text(30)
    who = identity.identify(Call(prompt(0, text)), 2)
    identity.finish(who.session, who.agent, prompt(0, text, output), len(prompt(0, text)), 3)
    assert identity.identify(Call(prompt(0, text, output, [9] * 8)), 4).session == who.session


def test_a_flood_keeps_every_bound() -> None:
    config = IdentityConfig(max_agents=8, max_sessions=16, max_anchor_nodes=256)
    identity, rng = Identity(config), np.random.default_rng(0)
    for now in range(800):
        tokens = rng.integers(0, 30_000, 80, dtype=np.int32)
        labels = {} if now % 2 else {"agent": f"a{now}", "session": f"s{now}"}
        who = identity.identify(Call(tokens, **labels, routing_key=f"k{now}"), now)
        identity.finish(who.session, who.agent, tokens, 40, now)
    sizes = identity.sizes()
    assert sizes["agents"] <= 8 and sizes["sessions"] <= 16 and sizes["anchor_nodes"] <= 256
    assert sizes["agent_labels"] <= 8 and sizes["session_labels"] <= 16
    assert len(identity.agent_report()) <= 8


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_the_same_calls_give_the_same_ids(seed: int) -> None:
    one = replay(Identity(IdentityConfig()), seed)
    assert one == replay(Identity(IdentityConfig()), seed)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_renaming_the_vocabulary_hardly_changes_who_is_who(seed: int) -> None:
    table = np.random.default_rng(seed).permutation(32_000).astype(np.int32)
    one = replay(Identity(IdentityConfig()), seed)
    other = replay(Identity(IdentityConfig()), seed, table)
    # Not the same to the call: which windows are sampled depends on their hashes.
    for name in ("session", "agent"):
        a, b = [getattr(who, name) for who in one], [getattr(who, name) for who in other]
        assert min(kept_together(a, b), kept_together(b, a)) >= 0.85


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_the_root_of_a_root_is_itself_and_merges_lead_to_survivors(seed: int) -> None:
    identity = Identity(IdentityConfig())
    for who in replay(identity, seed):
        for absorbed, survivor in who.merged:
            assert identity.root(absorbed) == identity.root(survivor)
        root = identity.root(who.session)
        assert identity.root(root) == root <= who.session


def test_two_processes_with_other_hash_seeds_agree() -> None:
    code = (
        "import sys; sys.path[:0] = ['tests/radix_policy', '.'];"
        "from test_identity import *; print(replay(Identity(IdentityConfig())))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] != b""


@pytest.mark.parametrize("live", [8, 32])
@pytest.mark.parametrize("name", recorded() or ["none"])
def test_recorded_runs_are_understood_without_ids(name: str, live: int) -> None:
    pytest.importorskip("zstandard")
    if name not in recorded():
        pytest.skip("the recorded runs are not beside this checkout")
    quality, _ = measure(load(recorded()[name])[:60], live)
    assert quality.right >= 0.97
    assert quality.wrong <= 0.02
    assert quality.v >= 0.95
