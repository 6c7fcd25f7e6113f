"""What an agent does with Sandcell: data goes in, code that a model wrote runs, results come out.

The three snippets stand for answers of a model; the second is wrong, as such answers are now and then.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from sandcell import Sandbox

LOOK = """
import pandas as pd
penguins = pd.read_csv("penguins.csv").dropna()
print(f"{len(penguins)} penguins measured in full")
penguins.groupby("species")["body_mass_g"].agg(["count", "mean", "max"]).round(0)
"""
WRONG = """
penguins["flipper_length"].corr(penguins["body_mass_g"])
"""
RIGHT = """
import matplotlib.pyplot as plt
import numpy as np
slope, start = np.polyfit(penguins["flipper_length_mm"], penguins["body_mass_g"], 1)
penguins.plot.scatter("flipper_length_mm", "body_mass_g", c="#3070b0", alpha=0.5)
edges = penguins["flipper_length_mm"].agg(["min", "max"])
plt.plot(edges, slope * edges + start, "k--")
plt.show()
float(round(slope, 1))
"""


def main(out: Path) -> None:
    data = (files("palmerpenguins") / "data" / "penguins.csv").read_bytes()
    with Sandbox.create() as sandbox:
        say(f"sandbox {sandbox.name} of engine {sandbox.engine}")
        sandbox.files.write("penguins.csv", data)
        look = sandbox.run_code(LOOK)
        say(look.stdout.strip())
        say(look.text or "no table came back")
        wrong = sandbox.run_code(WRONG)
        if wrong.error is not None:
            say(f"a wrong answer failed and cost nothing: {wrong.error.name}: {wrong.error.value}")
        right = sandbox.run_code(RIGHT)
        say(f"each millimetre of flipper goes with {right.value} g of penguin")
        if right.images:
            out.mkdir(parents=True, exist_ok=True)
            plot = out / "penguins.png"
            plot.write_bytes(right.images[0])
            say(f"its plot: {plot}")
        say("in a shell: " + sandbox.exec("wc -l penguins.csv; ls /home").stdout.strip().replace("\n", ", "))
    say("the sandbox is gone")


def say(text: str) -> None:
    print("   " + text.replace("\n", "\n   "))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for the plot")
    main(parser.parse_args().out.resolve())
