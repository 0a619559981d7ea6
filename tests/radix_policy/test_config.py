from __future__ import annotations

from dataclasses import fields

import pytest

from radix_policy.config import POLICIES, ConfigError, parse_config


@pytest.mark.parametrize("policy", POLICIES)
def test_defaults_lie_within_their_own_ranges(policy: str) -> None:
    config = parse_config(policy)
    raw = {f.name: getattr(config, f.name) for f in fields(config)}
    assert parse_config(policy, raw) == config


@pytest.mark.parametrize("policy", POLICIES)
def test_every_field_says_what_it_means(policy: str) -> None:
    assert all(f.metadata["meaning"] for f in fields(POLICIES[policy]))


def test_an_unknown_field_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"scout: unknown field 'kapa'; .*prior_weight"):
        parse_config("scout", {"kapa": 2})


@pytest.mark.parametrize(
    ("policy", "raw", "message"),
    [
        ("scout", {"prior_weight": -1}, "scout.prior_weight must be a number from 0.01 to 100"),
        ("scout", {"prior_weight": "2"}, "scout.prior_weight must be a number"),
        ("scout", {"refresh": 1.5}, "scout.refresh must be a whole number"),
        ("scout", {"refresh": True}, "scout.refresh must be a whole number"),
        ("scout", {"trim": 1}, "scout.trim must be true or false"),
        ("cachescout", {"variant": "global"}, "cachescout.variant must be one of per-session"),
        ("scout", ["trim"], "must be a JSON object"),
        ("lru", {}, "unknown policy 'lru'; accepted: scout, cachescout"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_accepted(policy, raw, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(policy, raw)


def test_a_whole_number_is_accepted_where_a_fraction_is() -> None:
    assert parse_config("scout", {"prior_weight": 2}).prior_weight == 2.0
