"""`sandcell image build`: the runtime image, made of this very installation."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell.cli.output import write_stdout
from sandcell.client.container_options import container_fields
from sandcell.client.host import engine_settings, guest_command
from sandcell_container.engines.detect import open_builder
from sandcell_container.engines.image_recipe import ImageOrder, recipe_of

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config

__all__ = ["build_image", "order_of"]


def build_image(options: argparse.Namespace, config: Config) -> int:
    """Build what the options say, the daemon's lines on standard error as they come; the image's name is the output."""
    order = order_of(options)
    config = replace(
        config,
        build_network=options.network or config.build_network,
        build_ca_bundle=options.ca_bundle or config.build_ca_bundle,
        build_index_url=options.index_url or config.build_index_url,
    )
    engine = open_builder(options.engine or "auto", engine_settings(config, guest_command(), {}))
    print(f"sandcell: {engine.name} builds {order.tag}", file=sys.stderr)
    engine.build_image(order, on_line=lambda line: print(line, file=sys.stderr, flush=True))
    write_stdout(f"{order.tag}\n")
    return 0


def order_of(options: argparse.Namespace) -> ImageOrder:
    """Return the image that the options name.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): a package or preset is none.
    """
    asked = {"packages": options.packages, "apt": options.apt, "preset": options.preset}
    checked = container_fields(asked)
    return ImageOrder(
        target=options.target,
        tag=options.tag or f"sandcell-runtime:{options.target}",
        base=options.base,
        recipe=recipe_of(checked["packages"], checked["apt"], checked["preset"]),
    )
