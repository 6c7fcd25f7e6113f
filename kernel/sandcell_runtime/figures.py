"""Figures of matplotlib in a run that asks for charts: each is shown once, whatever the backend does or does not show.

At the end of a run the inline backend shows all figures, also those that the run has displayed itself; backends that
have no window show none. Here the first kind is left out and the second shown. A figure that was changed after it was
shown is shown again. Nothing of matplotlib is imported here: who has a figure has done so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet

from IPython.core import pylabtools

from sandcell_runtime.libraries import is_a

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Figures", "add_picture", "is_figure"]

_WINDOWLESS = ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template")
_PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "application/pdf")


def is_figure(value: object) -> bool:
    """Whether `value` is a figure of matplotlib's."""
    return is_a(value, "matplotlib.figure", "Figure")


def add_picture(figure: Any, bundle: dict[str, Any]) -> None:
    """Add a picture where `bundle` has none, as IPython makes one only once a backend of its own is loaded."""
    if not any(mime in bundle for mime in _PICTURES):
        picture = cast("Any", pylabtools).print_figure(figure, base64=True)
        if picture:
            bundle["image/png"] = picture


class _Watch:
    """What was seen of one figure: the picture that was shown last, by its hash, and whether it was drawn since."""

    def __init__(self) -> None:
        self.drawn = False
        self.picture = 0

    def note(self, _event: object) -> None:
        self.drawn = True


class Figures:
    """The figures of a context. `begin` is called before a run that asks for charts, `end` when its code has ended."""

    def __init__(self) -> None:
        self._watches: WeakKeyDictionary[Any, _Watch] = WeakKeyDictionary()
        self._shown: WeakSet[Any] = WeakSet()  # in this run
        self._before: WeakSet[Any] = WeakSet()  # open before this run
        self._ending = False

    def begin(self) -> None:
        self._shown, self._before = WeakSet(), WeakSet(_open_figures())
        self._ending = False

    def end(self) -> None:
        """What is displayed from now on, the backend displays."""
        self._ending = True

    def is_repeated(self, figure: Any) -> bool:
        """Whether the backend shows what the run has shown itself, and nothing has touched since."""
        return self._ending and figure in self._shown and not self._is_touched(figure)

    def is_same(self, figure: Any, bundle: dict[str, Any]) -> bool:
        """Whether the backend shows what the run has shown itself, though something has touched it since."""
        return self._ending and figure in self._shown and self._watches[figure].picture == _picture_in(bundle)

    def note_shown(self, figure: Any, bundle: dict[str, Any]) -> None:
        watch = self._watches.get(figure)
        if watch is None:
            watch = self._watches[figure] = _Watch()
            figure.canvas.mpl_connect("draw_event", watch.note)
        self._shown.add(figure)
        watch.picture, watch.drawn = _picture_in(bundle), False
        figure.stale = False  # drawing for a picture leaves it set

    def show_rest(self, show: Callable[[Any], object]) -> None:
        """Show what nobody shows: figures that this run made or touched, under a backend without windows."""
        if _backend() in _WINDOWLESS:
            for figure in _open_figures():
                if self._is_to_show(figure):
                    show(figure)

    def _is_to_show(self, figure: Any) -> bool:
        if figure not in self._watches:
            return figure not in self._before  # else of a run that did not ask
        return self._is_touched(figure)

    def _is_touched(self, figure: Any) -> bool:
        """Whether a change since it was shown is not drawn yet, or anything has drawn it: in interactive mode each does."""
        return bool(figure.stale) or self._watches[figure].drawn


def _picture_in(bundle: dict[str, Any]) -> int:
    return hash(next((bundle[mime] for mime in _PICTURES if mime in bundle), None))


def _open_figures() -> list[Any]:
    """Return the figures that pyplot knows."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]


def _backend() -> str:
    """Return the name of the backend in use, without choosing one, which asking matplotlib would."""
    settings: Any = getattr(sys.modules.get("matplotlib"), "rcParams", {})
    name = cast("object", dict.get(settings, "backend"))
    return name.lower() if isinstance(name, str) else ""
