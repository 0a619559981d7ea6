"""Every notebook runs at its smallest size, and its committed outputs belong to its text."""

import json
import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "evals" / "notebooks").glob("*.py"))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.setenv("NOTEBOOK_SIZE", "small")
    # Generated workloads alone: recorded sets need not be at hand.
    monkeypatch.setenv("SCOUT_TRACES", "nowhere")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def code_cells(text):
    """The code of a script in jupytext's percent format, cell by cell."""
    cells = []
    for part in text.split("\n# %%")[1:]:
        kind, _, body = part.partition("\n")
        if "[markdown]" not in kind:
            cells.append(body.strip())
    return cells


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_at_its_smallest_size_and_draws(notebook, capsys):
    from matplotlib import pyplot

    runpy.run_path(str(notebook))
    assert pyplot.get_fignums()
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_committed_outputs_were_made_from_this_text_without_an_error(notebook):
    paired = json.loads(notebook.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in paired["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]).strip() for cell in cells] == code_cells(
        notebook.read_text(encoding="utf-8")
    )
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "display_data" in kinds
    assert "error" not in kinds


def test_an_unknown_size_is_refused_with_the_known_ones(monkeypatch):
    from evals.notebook import size

    monkeypatch.setenv("NOTEBOOK_SIZE", "huge")
    with pytest.raises(ValueError, match="one of small, medium, full, got 'huge'"):
        size()
