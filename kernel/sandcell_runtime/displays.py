"""What a run displays, on its way out: formatted as IPython does, with what the run asked for beside it.

A run that asks for nothing gets what stock ipykernel makes, byte for byte, so saved notebooks stay clean. One that
asks may have: its last value as JSON (`formatters`), tables as data (`frames`), figures as charts (`charts`), each figure once
(`figures`), and what is too large in files (`spills`). None of this can fail a cell, or hold it long (`guards`): what could
not be made is told in `metadata["sandcell"]["failed"]`, by MIME type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import IPython.display
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQDisplayPublisher
from IPython.core.formatters import DisplayFormatter

from sandcell_runtime.cells import Budget, cell_of
from sandcell_runtime.charts import CHART_MIME, chart_of
from sandcell_runtime.figures import Figures, add_picture, is_figure
from sandcell_runtime.formatters import VALUE_MIME, NotPlain, plain_value
from sandcell_runtime.frames import DATA_MIME, table_of
from sandcell_runtime.guards import Guards, fault_of
from sandcell_runtime.specifications import specification_of
from sandcell_runtime.spills import Spills, own_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["NOTHING", "BundleFormatter", "DisplayHook", "DisplayPublisher", "Wishes"]

_MOST = 16 * 2**20  # bytes of JSON that a part may become which was none
_OWN = (DATA_MIME, CHART_MIME)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a run asks for beside what Jupyter has."""

    value: bool = False
    data: bool = False
    chart: bool = False
    spills: Spills | None = None

    @classmethod
    def of(cls, extras: Mapping[str, Any]) -> Wishes:
        """Read them from the extras of a request; what is not as it should be asks for nothing."""
        want, spills = extras.get("want"), Spills.of(extras.get("spill"))
        if not isinstance(want, list):
            return NOTHING
        return cls(value="value" in want, data="data" in want, chart="chart" in want, spills=spills)


NOTHING = Wishes()


class BundleFormatter(DisplayFormatter):
    """Makes bundles. `wishes` are those of the run that is on."""

    wishes = NOTHING

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._figures = Figures()
        self.guards = Guards()

    def begin_run(self, wishes: Wishes) -> None:
        """Format as `wishes` say, until `end_run`."""
        self.wishes = wishes
        if wishes is not NOTHING:
            self.guards = Guards()
        if wishes.chart:
            self.guards.fault_of(self._figures.begin)  # code can change what is asked there

    def end_run(self) -> None:
        self.wishes = NOTHING

    def end_code(self) -> None:
        """The code of the run has ended; what follows is what the backend of matplotlib displays."""
        if self.wishes.chart:
            self._figures.end()

    def show_rest(self) -> None:
        """Display the figures that nobody has."""
        if self.wishes.chart:
            self._figures.show_rest(cast("Any", IPython.display).display)

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        is_chart = self.wishes.chart and is_figure(obj)
        if is_chart and self._holds(lambda: self._figures.is_repeated(obj)):
            return {}, {}
        bundle, metadata = cast(
            "tuple[dict[str, Any], dict[str, Any]]", super().format(obj, include, exclude)
        )
        if self.wishes is NOTHING or not bundle:  # nothing is asked for, or the object has displayed itself
            return bundle, metadata
        failed = dict[str, str]()
        if is_chart:
            _note(failed, "image/png", fault_of(lambda: add_picture(obj, bundle)))
            if self._holds(lambda: self._figures.is_same(obj, bundle)):
                return {}, {}
            self._try(failed, CHART_MIME, lambda: bundle.update({CHART_MIME: chart_of(obj)}))
            self._try(failed, "figures", lambda: self._figures.note_shown(obj, bundle))
        else:
            self._add_others(obj, bundle, failed)
        return bundle, {**metadata, "sandcell": {"failed": failed}} if failed else metadata

    def _add_others(self, obj: object, bundle: dict[str, Any], failed: dict[str, str]) -> None:
        if self.wishes.data:
            self._try(failed, DATA_MIME, lambda: bundle.update(_table_in_bundle(obj)))
        if self.wishes.chart:
            self._try(failed, "specification", lambda: bundle.update(specification_of(obj, bundle)))

    def _try(self, failed: dict[str, str], what: str, make: Callable[[], None]) -> None:
        """Make an extra; where that fails, say in `failed` why."""
        _note(failed, what, self.guards.fault_of(make))

    def _holds(self, ask: Callable[[], bool]) -> bool:
        """Return the answer, False where there is none."""
        answers = list[bool]()
        self.guards.fault_of(lambda: answers.append(ask()))
        return answers == [True]


class DisplayPublisher(ZMQDisplayPublisher):
    def publish(self, data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        wishes = _wishes(self)
        if wishes is not NOTHING and _is_dict(data) and _is_dict(metadata or {}):
            data, metadata = _sendable(_formatter(self), data, metadata or {})
        super().publish(data, metadata, *args, **kwargs)


class DisplayHook(ZMQShellDisplayHook):
    """Publishes the main result. What is ours in it is added at the last moment: the history, which a notebook may be
    saved from, keeps what stock does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own: dict[str, Any] = {}

    def compute_format_data(self, result: object) -> Any:
        bundle, metadata = cast("tuple[dict[str, Any], Any]", super().compute_format_data(result))
        self._own = {mime: bundle.pop(mime) for mime in _OWN if mime in bundle}
        if _wishes(self).value:
            # What fails when it is looked at has no value, as what has no plain form.
            _formatter(self).guards.fault_of(lambda: self._own.update(_value_of(result)))
        return bundle, metadata

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        wishes = _wishes(self)
        if wishes is not NOTHING:
            format_dict, md_dict = _sendable(_formatter(self), format_dict, md_dict or {})
        super().write_format_data(format_dict, md_dict)
        if self.msg:
            self.msg["content"]["data"].update(self._own)
        self._own = {}


def _formatter(part: Any) -> BundleFormatter:
    """Return what makes bundles, by a part of its shell."""
    return cast("BundleFormatter", part.shell.display_formatter)


def _wishes(part: Any) -> Wishes:
    """Return the wishes of the run that is on, by a part of its shell."""
    return _formatter(part).wishes


def _table_in_bundle(obj: object) -> dict[str, Any]:
    table = table_of(obj)
    return {} if table is None else {DATA_MIME: table}


def _note(failed: dict[str, str], what: str, fault: str | None) -> None:
    if fault is not None:
        failed[what] = fault


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)  # asked of what a user's code has passed, and may be anything


def _sendable(
    formatter: BundleFormatter, bundle: dict[str, Any], metadata: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle and its metadata as they can be sent: JSON all through, and no part too large."""
    failed, spills = dict[str, str](), formatter.wishes.spills
    sendable = _parts(formatter.guards, failed, bundle)
    told = _parts(formatter.guards, failed, metadata)
    if failed:
        told = {**told, "sandcell": {**own_of(told), "failed": failed}}
    return spills.lighten(sendable, told) if spills is not None else (sendable, told)


def _parts(guards: Guards, failed: dict[str, str], parts: dict[str, Any]) -> dict[str, Any]:
    """Return `parts` as JSON has them, without those that have no such form."""
    found = dict[str, Any]()
    items = cast("Iterable[tuple[object, object]]", dict.items(parts))
    for name, part in items:  # a class of the user's may have other items
        if type(part) is str and type(name) is str:
            found[name] = part  # as most are, and what is to be shown whatever else fails
        else:
            told = name if type(name) is str else "a part without a name"
            _note(failed, told, guards.fault_of(partial(_put_sendable, found, name, part)))
    return found


def _put_sendable(parts: dict[str, Any], name: object, part: object) -> None:
    parts[str(name)] = _plain(part) if _is_sendable(part) else cell_of(part, Budget(_MOST))


def _plain(part: object) -> object:
    """Return text of a class of the user's as what it is beneath."""
    return str.__str__(part) if isinstance(part, str) else part


def _is_sendable(part: object) -> bool:
    """Whether it is text, bytes or JSON as it is."""
    if part is None or isinstance(part, str | bytes):
        return True
    try:
        json.dumps(part, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _value_of(result: object) -> dict[str, Any]:
    try:
        return {VALUE_MIME: plain_value(result)}
    except NotPlain:
        return {}
