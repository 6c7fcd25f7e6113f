"""What a run displays: figures once and as they are, tables and charts as data, what is too large in files."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from matplotlib import image as pictures

from sandcell import RunResult, Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context
    from sandcell.result import Result


@pytest.fixture
def context(sandbox: Sandbox) -> Generator[Context]:
    made = sandbox.create_context()
    yield made
    made.delete()


def run(context: Context, code: str) -> RunResult:
    done = context.run_code(code)
    assert done.ok, done.for_model()
    return done


def pixels(png: bytes | None) -> Any:
    assert png is not None
    return pictures.imread(io.BytesIO(png))


# --- figures, once

STATES = {
    "not loaded": "",
    "inline": "%matplotlib inline\n",
    "agg": "import matplotlib; matplotlib.use('agg')\n",
    "agg by magic": "%matplotlib agg\n",
    "agg by environment": "import os; os.environ['MPLBACKEND'] = 'agg'\n",
}
PYPLOT = "import matplotlib.pyplot as plt\n"
DRAWN = PYPLOT + "fig, ax = plt.subplots(); ax.plot([1, 2, 3])\n"
SHOWN_BY = {
    "nobody": DRAWN + "pass",
    "show": DRAWN + "plt.show()",
    "its value": DRAWN + "fig",
    "display": DRAWN + "display(fig)",
    "display, then saved": DRAWN + "display(fig); fig.savefig('x.png')",
    "saved": DRAWN + "fig.savefig('x.png')",
    "a figure without pyplot": "from matplotlib.figure import Figure\nfig = Figure(); fig.subplots().plot([1, 2]); fig",
}


@pytest.mark.parametrize("state", STATES)
def test_a_figure_appears_once_whoever_shows_it(context: Context, state: str) -> None:
    run(context, STATES[state] or "pass")
    for code in SHOWN_BY.values():
        done = run(context, code)
        assert len(done.images) == 1, code
        assert [result.chart.kind for result in done.results if result.chart] == ["line"]
        run(
            context,
            "import sys\nif 'matplotlib.pyplot' in sys.modules: sys.modules['matplotlib.pyplot'].close('all')",
        )


@pytest.mark.parametrize("state", STATES)
def test_a_figure_that_was_closed_does_not_appear_and_one_that_was_changed_appears_again(
    context: Context, state: str
) -> None:
    run(context, STATES[state] or "pass")
    assert run(context, DRAWN + "plt.close()").images == []
    again = run(context, DRAWN + "display(fig); ax.set_title('changed');")
    assert len(again.images) == 2
    assert [result.chart.title for result in again.results if result.chart] == [None, "changed"]
    assert run(context, "1").images == []


def test_a_figure_that_stays_open_appears_again_when_it_was_changed(context: Context) -> None:
    run(context, STATES["agg"] + DRAWN)
    assert run(context, "1").images == []
    assert len(run(context, "ax.set_title('t');").images) == 1
    assert run(context, "plt.close()").images == []


@pytest.mark.parametrize("state", ["not loaded", "agg"])
def test_a_figure_has_the_pixels_that_matplotlib_saves(
    context: Context, sandbox: Sandbox, state: str
) -> None:
    code = """
    import numpy as np
    fig, axes = plt.subplots(2, 2, figsize=(7, 5))
    axes[0, 0].plot(np.sin(np.arange(50) / 5), label="sine"); axes[0, 0].legend()
    axes[0, 1].bar(["a", "b"], [1, 2]); axes[1, 0].imshow(np.arange(12).reshape(3, 4)); axes[1, 1].pie([1, 2, 3])
    fig.suptitle("Four")
    fig.savefig("saved.png", bbox_inches="tight", dpi=fig.dpi, facecolor=fig.get_facecolor())
    """
    done = run(context, STATES[state] + PYPLOT + "if True:" + code)
    (shown,) = done.images
    saved = sandbox.files.read_bytes("saved.png")
    assert pixels(shown).shape[0] > 200
    assert numpy.array_equal(pixels(shown), pixels(saved))
    chart = next(result.chart for result in done.results if result.chart)
    assert [axes.kind for axes in chart.axes] == ["line", "bar", "heatmap", "pie"]
    assert chart.title == "Four"


# --- data and charts of other libraries


def main(done: RunResult) -> Result:
    return next(result for result in done.results if result.is_main)


def test_tables_are_data(context: Context) -> None:
    table = main(run(context, "import pandas as pd; pd.DataFrame({'a': [1, None], 'b': ['x', 'y']})"))
    assert table.data is not None
    assert (table.data.columns, table.data.rows, table.data.shape) == (
        ["a", "b"],
        [[1, "x"], [None, "y"]],
        (2, 2),
    )
    assert table.to_pandas()["b"].tolist() == ["x", "y"]
    assert table.html is not None
    assert table.formats() == ["html", "text", "data"]
    shown = run(context, "import polars as pl; display(pl.DataFrame({'a': [1]}))").results[0]
    assert shown.data is not None
    assert shown.data.library == "polars"


def test_plotly_is_a_chart_and_others_keep_their_own(context: Context) -> None:
    bar = "import plotly.graph_objects as go; go.Figure(go.Bar(x=['a', 'b'], y=[1, 2], name='n'))"
    done = run(context, bar)
    chart = next(result.chart for result in done.results if result.chart)
    assert (chart.library, chart.kind, chart.series[0].points) == ("plotly", "bar", [["a", 1], ["b", 2]])
    altair = "import altair, pandas; altair.Chart(pandas.DataFrame({'a': [1]})).mark_bar().encode(x='a')"
    (mime,) = [mime for mime in main(run(context, altair)).mime if "vegalite" in mime]
    assert main(run(context, "_")).mime[mime]["mark"] == {"type": "bar"}
    bokeh = "from bokeh.plotting import figure; plot = figure(); plot.line([1, 2], [3, 4]); plot"
    assert main(run(context, bokeh)).mime["application/vnd.sandcell.bokeh+json"]["roots"]
    run(context, "from bokeh.io import output_notebook, show; output_notebook(); show(plot)")  # is as it was


# --- what is too large


@pytest.mark.parametrize(
    ("code", "mime", "size", "suffix"),
    [
        ("'x' * 5_000_000", "text/plain", 5_000_002, ".txt"),
        ("class H:\n  def _repr_html_(self): return 'h' * 2_000_000\nH()", "text/html", 2_000_000, ".html"),
        ("display({'image/png': bytes(12_000_000)}, raw=True)", "image/png", 12_000_000, ".png"),
        (
            "display({'application/vnd.x+json': ['x' * 2_000_000]}, raw=True)",
            "application/vnd.x+json",
            2_000_004,
            ".json",
        ),
        (
            "display('first', display_id='d'); h = display('y' * 2_000_000, display_id='d', update=True)",
            "text/plain",
            2_000_002,
            ".txt",
        ),
        ("'z' * 100_000_000", "text/plain", 100_000_002, ".txt"),
    ],
    ids=["text", "html", "png", "json", "update", "more than a message"],
)
def test_what_is_too_large_is_whole_in_a_file(
    sandbox: Sandbox, code: str, mime: str, size: int, suffix: str
) -> None:
    done = sandbox.run_code(code)
    assert done.ok
    (result,) = done.results
    handle = result.spilled
    assert handle is not None
    assert (handle.mime, handle.size, handle.path.endswith(suffix)) == (mime, size, True)
    assert sandbox.files.stat(handle.path).size == size
    assert mime not in result.mime or handle.path in result.mime[mime]
    assert done.truncated[mime].path == handle.path
    assert handle.path in done.for_model()
    assert RunResult.from_dict(json.loads(json.dumps(done.to_dict()))) == done
    assert sandbox.run_code("1").value == 1


HTML = {
    "javascript": "await Deno.jupyter.display({'text/html': 'h'.repeat(2_000_000)}, {raw: true}); console.log('after')",
    "typescript": "await Deno.jupyter.display({'text/html': 'h'.repeat(2_000_000)}, {raw: true}); console.log('after')",
    "r": "IRdisplay::display_html(strrep('h', 2000000)); cat('after\\n')",
}


@pytest.mark.parametrize("language", HTML)
def test_other_languages_have_files_too(sandbox: Sandbox, language: str) -> None:
    if language == "r" and not os.path.exists("/usr/share/jupyter/kernels/ir/kernel.json"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("R or IRkernel is not installed")
    events = list(sandbox.start_code(HTML[language], language=language))
    done = sandbox.run_code(HTML[language], language=language)
    handle = done.results[0].spilled
    assert handle is not None
    assert (handle.mime, handle.size) == ("text/html", 2_000_000)
    assert sandbox.files.read(handle.path) == "h" * 2_000_000
    assert done.stdout == "after\n"
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Started", "ResultAdded", "Truncated", "Stdout", "Ended"]


def test_a_picture_that_was_too_large_is_a_picture_in_its_file(sandbox: Sandbox) -> None:
    noise = "import numpy; from PIL import Image; Image.fromarray(numpy.random.randint(0, 255, (2000, 2000, 3), 'uint8'))"
    done = sandbox.run_code(noise)
    (result,) = done.results
    assert result.spilled is not None
    assert (result.text or "").startswith("<PIL")
    assert pixels(sandbox.files.read_bytes(result.spilled.path)).shape == (2000, 2000, 3)


def test_where_no_file_can_be_made_that_is_said(sandbox: Sandbox) -> None:
    blocked = sandbox.create_context(env={"HOME": "/tmp"})
    blocked.run_code(
        "import os, shutil; p = os.path.expanduser('/home/user/.cache/sandcell/results')\nshutil.rmtree(p, True); open(p, 'w')"
    )
    try:
        done = blocked.run_code("'x' * 2_000_000")
        assert done.ok
        assert done.results[0].spilled is None
        assert "no file could be made" in (done.text or "")
        assert done.truncated["text/plain"].total_bytes == 2_000_002
    finally:
        blocked.run_code("os.unlink(p)")
        blocked.delete()


# --- bundles


BUNDLES = """
import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, given, settings

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.complex_numbers()
values = st.recursive(leaves, lambda v: st.lists(v) | st.dictionaries(st.integers() | st.text(), v) | st.frozensets(leaves), max_leaves=8)
mimes = st.sampled_from(["text/plain", "text/html", "image/png", "application/json", "image/svg+xml", "a/b"]) | st.text()

@given(st.dictionaries(mimes, values), st.dictionaries(st.text() | st.integers(), values))
@settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def show(bundle, metadata):
    class Shown:
        def _repr_mimebundle_(self, **_):
            return bundle, metadata
    display(Shown())
    display(bundle, metadata=metadata, raw=True)

show()
"""


FRAMES_AND_FIGURES = """
import hypothesis.strategies as st, pandas as pd, polars as pl, matplotlib.pyplot as plt, warnings
from hypothesis import HealthCheck, given, settings
warnings.simplefilter("ignore")

cells = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.lists(st.floats())
quick = settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))

@given(st.lists(st.tuples(cells, cells), max_size=4), st.tuples(st.text() | st.integers(), st.text()), st.lists(st.floats(), min_size=4, max_size=4))
@quick
def show(rows, names, numbers):
    display(pd.DataFrame(rows, columns=pd.Index(names) if rows else None))
    display(pl.DataFrame({name: pl.Series([str(row[0]) for row in rows]) for name in map(str, names)}))
    figure, ax = plt.subplots(figsize=(1, 1))
    try:
        ax.plot(numbers), ax.bar([1, 2, 3, 4], numbers), ax.scatter(numbers, numbers)
        figure.savefig("drawn.png")
    except Exception:
        plt.close(figure)  # matplotlib's own refusal
    else:
        display(figure)

show()
"""


def test_no_frame_and_no_figure_fails_a_cell(context: Context) -> None:
    done = run(context, FRAMES_AND_FIGURES)
    assert not any("sandcell" in result.metadata for result in done.results)
    assert sum(result.data is not None for result in done.results) >= 50
    assert sum(result.chart is not None for result in done.results) >= 5
    json.dumps(done.to_dict(), allow_nan=False)


def test_no_bundle_fails_a_cell(context: Context) -> None:
    done = run(context, BUNDLES)
    assert len(done.results) > 40
    json.dumps(done.to_dict(), allow_nan=False)


def test_an_object_that_cannot_be_looked_at_fails_no_cell(context: Context) -> None:
    code = """
    import pandas as pd
    class Frame(pd.DataFrame):
        @property
        def shape(self): raise ValueError("\\ud800")
        def _repr_html_(self): return "html"
        def __repr__(self): return "frame"
    """
    run(context, "if True:" + code)
    done = run(context, "Frame({'a': [1]})")
    assert main(done).data is None
    assert main(done).html == "html"
    failed = main(done).metadata["sandcell"]["failed"]
    assert failed == {"application/vnd.sandcell.data+json": "ValueError: \\ud800"}


LEAVERS = """
import matplotlib.pyplot as plt, pandas as pd
class Stop(BaseException):
    def __str__(self): raise Stop
def leave(*_): raise kind
def made(base, **looks):
    return type("Mine", (base,), {"__repr__": lambda self: "mine", "_repr_html_": lambda self: "html", **looks})
"""
LEFT = {
    "a label": "ax = plt.subplots()[1]; ax.plot([1])[0].get_label = leave",
    "drawing": "ax = plt.subplots()[1]; ax.plot([1])[0].draw = leave",
    "a shape": "plt.close('all'); made(pd.DataFrame, shape=property(leave))({'a': [1]})",
    "a class": "made(object, __class__=property(leave))()",
    "a value": "made(dict, items=leave)(a=1)",
    "text": "display({'text/plain': made(str, encode=leave, isascii=leave)('mine')}, raw=True)",
    "an error": "raise made(ValueError, __str__=leave)()",
    "a callback": "ip = get_ipython(); ip.events.register('post_execute', leave)",
    "a callback's end": "ip.events.unregister('post_execute', leave)",
}


@pytest.mark.parametrize("kind", ["SystemExit", "Stop", "KeyError"])
def test_whatever_an_object_raises_ends_no_interpreter(context: Context, kind: str) -> None:
    run(context, f"{LEAVERS}\nkind, kept = {kind}, 'kept'")
    ends = {what: context.run_code(code, timeout=20) for what, code in LEFT.items()}
    assert {what: done.end.state for what, done in ends.items()} == dict.fromkeys(LEFT, "kept")
    shown_as_failed = {"an error", "drawing", "a callback", "a class"}  # as IPython alone does
    assert {what for what, done in ends.items() if done.error} <= shown_as_failed
    assert len(ends["a label"].images) == 1
    assert main(ends["a shape"]).html == main(ends["a value"]).html == "html"
    assert ends["text"].results[0].text == "mine"
    assert (
        kind != "KeyError" or main(ends["a class"]).text == "mine"
    )  # the others end IPython's own formatters
    assert context.run_code("kept").value == "kept"


SLEEPER = """
import pandas as pd, signal, time
class Frame(pd.DataFrame):
    @property
    def iloc(self): time.sleep(600)
    def _repr_html_(self): return "html"
    def __repr__(self): return "frame"
told = []
signal.signal(signal.SIGALRM, lambda *_: told.append("alarm"))
"""
DATA = "application/vnd.sandcell.data+json"
ALARMED = "signal.setitimer(signal.ITIMER_REAL, 500); display(Frame({'a': [1]})); Frame({'a': [2]})"


def test_an_object_that_takes_for_ever_to_look_at_is_shown_without_its_data(context: Context) -> None:
    run(context, SLEEPER)
    done = run(context, ALARMED)
    assert [(each.html, each.data) for each in done.results] == [("html", None)] * 2
    failed = [each.metadata["sandcell"]["failed"] for each in done.results]
    assert failed == [{DATA: f"it took more than {seconds} s"} for seconds in (5, 0.1)]
    # Its own alarm is as it was, and comes to its own handler.
    code = (
        "left = signal.setitimer(signal.ITIMER_REAL, 0.01)[0]\nwhile not told: signal.pause()\n0 < left < 500"
    )
    assert run(context, code).value is True
