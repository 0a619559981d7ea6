"""The keep-list: what an entry names, and how much it may claim."""

from __future__ import annotations

import numpy as np
import pytest

from radix_policy.call import Call
from radix_policy.config import ConfigError, parse_config
from radix_policy.scout import Scout
from scout_sglang.keep_list import MOST_ENTRIES, KeepList


class Letters:
    """A tokenizer whose ids are characters."""

    def decode(self, ids):
        return "".join(map(chr, ids))


PROMPTS = {"coder": "You write code.\nKeep it short. ", "critic": "You find faults in code.  "}


def taught(**config) -> Scout:
    scout = Scout(parse_config("scout", config), capacity=1000)
    for session in range(3):
        for agent, text in PROMPTS.items():
            words = np.array([*map(ord, text), 500 + session], dtype=np.int32)
            scout.abandon(scout.observe(Call(words, (), agent, f"s{session}")))
    return scout


def kept(scout: Scout, entries, tokenizer=None) -> set[str]:
    """Labels of the agents that are kept."""
    keep = KeepList(scout, tokenizer or Letters(), entries)
    return {label for label in PROMPTS if scout.labelled(label)[0] in keep.kept}


def test_an_entry_names_an_agent_by_its_label():
    assert kept(taught(), ["coder", "nobody"]) == {"coder"}


def test_a_text_file_names_the_anchors_that_contain_it_white_space_aside(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("You write code. Keep it\n short.\n")
    assert kept(taught(), [str(path)]) == {"coder"}
    path.write_text("code.")
    assert kept(taught(), [str(path)]) == {"coder", "critic"}


def test_an_agent_that_comes_later_is_found_when_it_has_come():
    scout = taught()
    keep = KeepList(scout, Letters(), ["tester"])
    assert keep.kept == []
    for session in range(2):
        words = np.array([1, 2, 3, 500 + session], dtype=np.int32)
        scout.abandon(scout.observe(Call(words, (), "tester", f"s{session}")))
    keep.refresh()
    assert keep.kept == scout.labelled("tester")


def test_no_more_is_kept_than_its_share_of_the_cache():
    assert kept(taught(keep_share=0.04), ["coder", "critic"]) == {"coder"}
    assert kept(taught(keep_share=0.0), ["coder", "critic"]) == set()


def test_a_list_is_replaced_while_serving_and_a_bad_one_leaves_the_old_one(tmp_path):
    scout = taught()
    keep = KeepList(scout, Letters(), ["coder"])
    with pytest.raises(ValueError, match="at most"):
        keep.set(["x"] * (MOST_ENTRIES + 1))
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(ValueError, match="empty"):
        keep.set([str(empty)])
    assert keep.entries == ["coder"] and keep.kept == scout.labelled("coder")
    keep.set(["critic"])
    assert keep.kept == scout.labelled("critic")
    assert scout.kept == set(scout.labelled("critic"))


def test_after_a_restored_state_the_list_is_looked_up_again():
    saved, scout = taught(), Scout(parse_config("scout"), capacity=1000)
    keep = KeepList(scout, Letters(), ["coder"])
    scout.restore(saved.snapshot())
    keep.refresh()
    assert keep.kept == scout.labelled("coder") != []


def test_without_a_tokenizer_labels_still_name_anchors(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("code")
    keep = KeepList(scout := taught(), None, [str(path), "critic"])
    assert keep.kept == scout.labelled("critic")


def test_the_configuration_takes_a_list_of_texts():
    assert parse_config("scout", {"keep": ["a", "b"]}).keep == ("a", "b")
    for bad in ("a", [1], {"a": 1}):
        with pytest.raises(ConfigError, match="a list of texts"):
            parse_config("scout", {"keep": bad})
