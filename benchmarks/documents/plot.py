"""A ladder's figures as an SVG. The one module that needs matplotlib, of the extra `docs`."""

from __future__ import annotations

import math
from pathlib import Path

from documents.ladder import BASELINES, Figures, label

WIDTH_IN, HEIGHT_IN = 9.0, 5.0
HIGHEST, LOWEST = 1.15, 0.01


class NoMatplotlib(Exception):
    """matplotlib is not installed. The message says how to get it."""


def is_drawn_from(path: Path, drawn: Figures) -> bool:
    """Whether the SVG at `path` exists and was drawn from these figures."""
    return path.exists() and drawn.digest in path.read_text()


def draw(drawn: Figures, path: Path) -> None:
    """Write the SVG: for each case a line over the rungs, at the share of the floor's speed that each reaches.

    The same figures and matplotlib give the same bytes: text stays text, ids come from a fixed salt, and no
    date is written. Raises NoMatplotlib.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise NoMatplotlib(f"Drawing {path.name} needs matplotlib: pip install -e '.[docs]'") from error
    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import PercentFormatter

    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kernelgate", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        names = list(drawn.shares)
        rungs = [at for at, name in enumerate(names) if name not in BASELINES]
        others = [at for at, name in enumerate(names) if name in BASELINES]
        for number, case in enumerate(drawn.cases):
            shares = [of[number] or math.nan for of in drawn.shares.values()]
            first = number == 0  # the case that the whole ladder is about
            (line,) = axes.plot(rungs, [shares[at] for at in rungs], marker="o", label=case,
                                linewidth=3.0 if first else 1.2, zorder=3 if first else 2)  # fmt: skip
            axes.plot(others, [shares[at] for at in others], linestyle="", marker="s", color=line.get_color())
        axes.set_yscale("log")
        axes.set_ylim(LOWEST, HIGHEST)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylabel("of the floor: each byte moved once")
        axes.set_xticks(range(len(names)), [label(name).replace("_", "\n") for name in names], fontsize=8)
        axes.grid(axis="y", which="both", alpha=0.25)
        axes.set_title(f"LayerNorm, rung by rung, on one {drawn.gpu}")
        axes.legend(fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": f"figures {drawn.digest}"})
        pyplot.close(figure)
