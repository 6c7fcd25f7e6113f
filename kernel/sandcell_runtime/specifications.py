"""Charts of libraries that describe a chart as JSON themselves: their own specification, in the MIME type that it has.

plotly displays its own already. Altair and Bokeh, by default, display HTML alone.
"""

from __future__ import annotations

import importlib
from typing import Any

from sandcell_runtime.libraries import is_a

__all__ = ["BOKEH_MIME", "specification_of"]

BOKEH_MIME = (
    "application/vnd.sandcell.bokeh+json"  # what `bokeh.embed.json_item` gives; Bokeh has no type for it
)


def specification_of(chart: Any, bundle: dict[str, Any]) -> dict[str, Any]:
    """Return what `bundle` lacks of the specification of `chart`, by MIME type; {} where it is no such chart.

    Raises whatever the library does, such as Altair for too many rows.
    """
    if is_a(chart, "altair", "TopLevelMixin"):
        return {} if any("vegalite" in mime for mime in bundle) else _of_altair(chart)
    if is_a(chart, "bokeh.model", "Model") and is_a(chart, "bokeh.models", "LayoutDOM"):
        return {BOKEH_MIME: _of_bokeh(chart)}
    return {}


def _of_altair(chart: Any) -> dict[str, Any]:
    version: str = importlib.import_module("altair").SCHEMA_VERSION
    major = version.lstrip("v").partition(".")[0]
    return {f"application/vnd.vegalite.v{major}+json": chart.to_dict()}


def _of_bokeh(model: Any) -> Any:
    """Return the document of a model, which is in none afterwards if it was in none before: `show` wants it so."""
    if model.document is not None:
        return model.document.to_json(deferred=False)
    document = importlib.import_module("bokeh.document").Document()
    document.add_root(model)
    try:
        return document.to_json(deferred=False)
    finally:
        document.clear()
