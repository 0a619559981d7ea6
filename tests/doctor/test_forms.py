"""Which texts count as a date or an id, and that a place in a rewritten text leads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scout_sglang.doctor.forms import DATES, IDS
from scout_sglang.doctor.views import View, common_prefix


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30",
        "2026-11-30T21:15:07.250Z",
        "2026/1/9 7:05",
        "30.11.2026",
        "11/30/26, 9:05 PM",
        "20261130",
        "20261130T211507",
        "1796073307",
        "Monday, 30 November 2026 at 21:15:07",
        "Nov 30, 2026",
        "30th of".replace(" of", " November"),
        "Mon, 30 Nov 2026 21:15:07 +0100",
        "21:15:07 UTC",
    ],
)
def test_a_date_is_hidden_as_a_whole(text):
    assert DATES.sub("#", f"It is {text}, so go.") == "It is #, so go."


@pytest.mark.parametrize("text", ["in May", "version 3.11.4", "ratio 3:4", "steps 1-3", "Sunny"])
def test_what_is_no_date_is_left_alone(text):
    assert DATES.sub("#", f"Use {text} here.") == f"Use {text} here."


@pytest.mark.parametrize(
    "text",
    [
        "0b1f6a34-9d0e-4a57-8a55-1c1f0f2f7f11",
        "call_x7Kd93Qa",
        "deadbeefdeadbeefdeadbeef",
        "48213",
        "session: abc-12",
        "trace #77",
    ],
)
def test_an_id_is_hidden(text):
    assert "#" in IDS.sub("#", f"See {text} now") and text not in IDS.sub("#", f"See {text} now")


@pytest.mark.parametrize("text", ["search_code", "gpt4", "v2", "3.14159", "step 12"])
def test_names_and_small_numbers_are_no_ids(text):
    assert IDS.sub("<id>", f"See {text} now") == f"See {text} now"


@given(st.text("ab12", max_size=40), st.integers(0, 40))
def test_a_place_in_a_rewritten_text_leads_back_to_where_it_came_from(text, at):
    view = View("user", text)
    for sign, new in (("1", "one!"), ("a", "")):
        spots = [n for n, letter in enumerate(view.text) if letter == sign]
        view = view.rewritten((n, n + 1, new) for n in spots)
    at = min(at, len(view.text))
    origin = view.origin(at)
    assert 0 <= origin <= len(text)
    if at < len(view.text) and view.text[at] in "b2":
        assert text[origin] == view.text[at]


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_common_prefix_is_the_longest(a, b):
    size = common_prefix(a, b)
    assert a[:size] == b[:size]
    assert a[size : size + 1] != b[size : size + 1] or size == len(a) == len(b)
