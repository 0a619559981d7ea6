"""The live page in a real Chromium: each part is there, it keeps up, and it bears bad company."""

import itertools

import pytest

from scout_sglang.ui import page
from tests.ui import states
from tests.ui.browser import Browser, program
from tests.ui.served import Served

pytestmark = pytest.mark.skipif(
    program() is None, reason="no Chromium (Debian: apt-get install chromium-headless-shell)"
)

PARTS = ("tiles", "graph", "map", "rate", "evictions", "warmup", "guard", "faults", "agents")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def served():
    with Served(states.state()) as served:
        yield served


@pytest.fixture
def show(browser, served):
    """Open the page on an answer (or a function that makes one) and wait until it is drawn."""

    def opened(answer, **view):
        served.answer = answer
        browser.view(**view)
        browser.open(served.url)
        browser.wait("document.querySelectorAll('.tile').length === 6")
        return browser

    yield opened
    assert browser.errors == []


def colours(image):
    """How many different colours a picture has, and the share of the commonest one."""
    counts = image.getcolors(image.width * image.height)
    return len(counts), max(count for count, _ in counts) / (image.width * image.height)


def brightness(image):
    return sum(image.resize((1, 1)).getpixel((0, 0))) / 3


@pytest.mark.parametrize("agents", [6, 100])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_part_can_be_seen_in_the_picture(dark, agents, show):
    browser = show(states.state(agents, ranks=2), dark=dark)
    browser.wait(f"document.querySelectorAll('#graph .node').length === {agents}")
    for part in PARTS:
        picture = browser.photograph(f"#{part}")
        different, commonest = colours(picture)
        assert picture.width > 250 and picture.height > 60, part
        assert different > 30 and commonest < 0.97, part
    assert (brightness(browser.photograph()) < 80) == dark
    # Each drawing has colours that neither the ground nor the text has.
    for drawing in ("#graph .stage", "#map .stage", "#rate .stage"):
        vivid = [
            count
            for count, (r, g, b) in browser.photograph(drawing).getcolors(1 << 24)
            if max(r, g, b) - min(r, g, b) > 40
        ]
        assert sum(vivid) > 800, drawing


def test_the_figures_are_those_of_the_answer(show):
    answer = states.state()
    browser = show(answer)
    rank = answer["ranks"][0]
    shown = browser.run("document.body.innerText")
    for agent in rank["agents"]:
        assert f"{agent['calls']:,}" in shown
    assert f"{rank['sessions']['live']}" in shown
    nodes = browser.run("[...document.querySelectorAll('.node')].map(n => n.ariaLabel)")
    first = rank["agents"][0]
    said = next(label for label in nodes if label.startswith(f"{first['label']}:"))
    following = rank["transitions"]["probabilities"][0]
    likeliest = max(range(len(following)), key=following.__getitem__)
    assert f"{states.TEAM[likeliest]} {round(100 * following[likeliest])} %" in said
    area = (
        "[...document.querySelectorAll('.cell%s rect')].reduce((s, r) =>"
        " s + r.width.baseVal.value * r.height.baseVal.value, 0)"
    )
    free = browser.run(area % ".free") / browser.run(area % "")
    memory = rank["memory"]
    assert free == pytest.approx(memory["available"] / memory["capacity"], abs=0.03)


def test_it_loads_nothing_but_the_state_below_its_own_prefix(show):
    browser = show(states.state())
    asked = {url.partition("/some")[2] for url in browser.requests}
    assert asked == {"/prefix/scout/ui", "/prefix/scout"}
    document = page()
    assert "http://" not in document.replace("http://www.w3.org/", "")
    assert "https://" not in document and "@import" not in document


def test_it_follows_the_server_without_a_reload_and_keeps_the_focus(show, served):
    ticks = itertools.count()
    browser = show(lambda: states.state(tick=next(ticks)))
    browser.run("window.here = true; document.querySelector('.node').focus()")
    before = browser.run("document.querySelector('#agents tbody tr td:nth-child(2)').innerText")
    browser.wait(
        f"document.querySelector('#agents tbody tr td:nth-child(2)').innerText !== '{before}'"
    )
    assert browser.run("window.here === true && document.activeElement.matches('.node')")


def test_a_server_that_goes_is_said_so_and_found_again_when_it_is_back(show, served):
    browser = show(states.state())
    served.broken = True
    browser.wait("document.querySelector('#status').innerText === 'server gone'")
    assert "does not answer" in browser.run("document.querySelector('#notice').innerText")
    assert browser.run("document.querySelectorAll('.node').length") == 6
    different, _ = colours(browser.photograph("#graph"))
    assert different > 30
    served.broken = False
    browser.run("document.querySelector('#retry').click()")
    browser.wait("document.querySelector('#status').innerText === 'live'")
    assert browser.run("document.querySelector('#notice').hidden")


def test_a_server_that_runs_none_of_the_policies_is_said_to(show, served):
    browser = show(states.state())
    served.answer = {"error": "wrong door"}
    browser.wait("document.querySelector('#status').innerText === 'no figures'")
    assert "not the state of scout" in browser.run("document.querySelector('#notice').innerText")


def test_polls_become_rarer_while_the_server_is_gone(show, served):
    browser = show(states.state())
    served.broken = True
    browser.run("window.waits = []; window.setTimeout = (f, ms) => { waits.push(ms); return 0; }")
    for failures in range(1, 9):
        browser.run("document.querySelector('#retry').click()")
        browser.wait(f"waits.filter((ms) => ms > 2000).length >= {failures}")
    waits = [wait for wait in browser.run("waits") if wait > 2000]
    assert waits == sorted(waits) and waits[-1] == 30_000


def test_a_pause_stops_the_polling(show, served):
    browser = show(states.state())
    browser.run("document.querySelector('#pause').click()")
    polls = served.polls
    browser.run("document.querySelector('#theme').click()")
    browser.wait("document.querySelector('#status').innerText === 'paused'")
    with pytest.raises(AssertionError):
        browser.wait("document.querySelector('#status').innerText === 'live'", seconds=3)
    assert served.polls == polls
    browser.run("document.querySelector('#pause').click()")
    browser.wait("document.querySelector('#status').innerText === 'live'")


def test_a_key_is_asked_for_sent_as_a_bearer_and_forgotten_with_the_tab(browser, served):
    served.key = "open sesame"
    browser.view()
    browser.open(served.url)
    browser.wait("!document.querySelector('#key-form').hidden")
    browser.run("document.querySelector('#key').focus()")
    browser.type("wrong")
    browser.press("Enter")
    browser.wait("document.querySelector('#notice').innerText.includes('refuses this key')")
    browser.type("open sesame")
    browser.press("Enter")
    browser.wait("document.querySelector('#status').innerText === 'live'")
    assert browser.run("document.querySelector('#key-form').hidden")
    assert browser.run("localStorage.length") == 0
    assert not any("sesame" in url for url in browser.requests)


def test_hostile_labels_are_text_and_nothing_else(show):
    browser = show(states.state(labels=states.HOSTILE, faults={states.HOSTILE[0]: 3}))
    browser.run("document.querySelector('.node').focus()")
    browser.press("Enter")
    assert browser.run("document.title") == "scout · SmolLM2-135M-Instruct"
    assert browser.run("document.querySelectorAll('img, iframe, main script').length") == 0
    assert "<img src=x" in browser.run("document.querySelector('#agents').innerText")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("answer", [states.idle(), {"schema": 1, "ranks": [{"dp_rank": 0}]}])
def test_a_server_without_calls_or_with_fields_missing_shows_what_is_to_come(answer, show):
    browser = show(answer)
    assert "No calls yet" in browser.run("document.querySelector('#graph').innerText")
    assert "Nothing has been evicted" in browser.run(
        "document.querySelector('#evictions').innerText"
    )
    assert "NaN" not in browser.run("document.body.innerText")
    assert "undefined" not in browser.run("document.body.innerText")


def test_the_ranks_can_be_chosen(show):
    answer = states.state(ranks=3)
    for rank in answer["ranks"]:
        rank["sessions"]["live"] = 1000 + rank["dp_rank"]
    browser = show(answer)
    browser.run(
        "(() => { const r = document.querySelector('#rank'); r.value = '2';"
        " r.dispatchEvent(new Event('change')); })()"
    )
    browser.wait("document.querySelector('#tiles').innerText.includes('1,002')")


def test_shadow_mode_and_faults_are_said(show):
    saved = {"policy": "scout", "sample": 0.25, "saved_tokens": 123_456, "saved_share": 0.07}
    browser = show(states.state(mode="shadow", shadow=saved, faults={"evict": 3}))
    note = browser.run("document.querySelector('#shadow-note').innerText")
    assert "as under lru" in note and "123 k" in note and "25 %" in note
    assert "evict" in browser.run("document.querySelector('#faults').innerText")


def test_the_keyboard_reaches_and_reads_every_part(show):
    browser = show(states.state(100))
    reached = []
    for _ in range(24):
        browser.press("Tab")
        reached.append(
            browser.run(
                "(document.activeElement.closest('section, header, .skip, footer') || {}).id"
                " || document.activeElement.className || document.activeElement.id"
            )
        )
    if "skip" in reached[1:]:  # round to the first stop again
        reached = reached[: reached.index("skip", 1)]
    for part in ("skip", "graph", "map", "rate", "evictions", "agents"):
        assert part in reached, part
    # One stop for a hundred nodes; arrows move inside, Enter chooses, the choice is told.
    assert reached.count("graph") == 1
    browser.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    browser.press("ArrowRight", "Enter")
    assert browser.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "hit rate" in browser.run("document.querySelector('#detail').innerText")
    browser.press("Escape")
    assert "Choose an agent" in browser.run("document.querySelector('#detail').innerText")
    browser.run("document.querySelector('#rate svg').focus()")
    browser.press("Home")
    assert "ago" in browser.run("document.querySelector('#rate-read').innerText")


def test_everything_that_can_be_used_has_a_name_and_contrast(show):
    for dark in (False, True):
        browser = show(states.state(), dark=dark)
        nameless = browser.run(
            "[...document.querySelectorAll('button, input, select, a, [role=button], [role=img],"
            ' [role=group], [role=region], [tabindex="0"]\')].filter(e => !(e.ariaLabel ||'
            " e.innerText || e.getAttribute('aria-labelledby') || (e.labels || []).length ||"
            " e.id === 'main')).map(e => e.outerHTML.slice(0, 80))"
        )
        assert nameless == []
        low = browser.run(
            "(() => { const lum = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number)"
            ".map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);"
            " return .2126 * r + .7152 * g + .0722 * b; };"
            " const box = document.querySelector('.panel');"
            " const panel = lum(getComputedStyle(box).backgroundColor);"
            " return ['h2', '.hint', '.tile dd', '.tile dt', 'td', '.status', '.legend span']"
            ".filter(s => { const t = lum(getComputedStyle(document.querySelector(s)).color);"
            " return (Math.max(t, panel) + .05) / (Math.min(t, panel) + .05) < 4.5; }); })()"
        )
        assert low == []


@pytest.mark.parametrize("width", [400, 800, 1920])
def test_it_fits_windows_of_any_width(width, show):
    browser = show(states.state(100), width=width, height=900)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
