"""The harness's rooms and what each imports of the others, read from the files; and their picture."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

from documents.plot import NoMatplotlib
from harness.paths import ROOT

HARNESS = ROOT / "harness"

Rooms = Mapping[str, set[str]]
"""Each room, a folder or a file of the harness, and the rooms that it imports."""

BOX_WIDTH, BOX_HEIGHT, FLOOR_HEIGHT = 1.25, 0.42, 0.85


def room_of(path: Path) -> str:
    """The room that a file of the harness belongs to."""
    return path.relative_to(HARNESS).parts[0].removesuffix(".py")


def imported_by(path: Path) -> Iterator[str]:
    """The rooms that a file imports, where it is loaded or in a function; its own may be among them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("harness."))


def rooms() -> dict[str, set[str]]:
    """All rooms. The harness's own `__init__` is none: it is the plan of them."""
    found: dict[str, set[str]] = {}
    for path in sorted(HARNESS.rglob("*.py")):
        if path != HARNESS / "__init__.py":
            room = room_of(path)
            found.setdefault(room, set()).update(set(imported_by(path)) - {room})
    return found


def floors(house: Rooms) -> dict[str, int]:
    """How high each room stands: above all that it imports, the ground being 0. Raises graphlib.CycleError."""
    height: dict[str, int] = {}
    for room in TopologicalSorter(house).static_order():
        height[room] = 1 + max((height[below] for below in house.get(room, ())), default=-1)
    return height


def needed(house: Rooms) -> dict[str, set[str]]:
    """The imports that no chain of others implies (the transitive reduction): all of them would be a thicket."""
    reached: dict[str, set[str]] = {}
    for room in TopologicalSorter(house).static_order():
        direct = house.get(room, set())
        reached[room] = direct.union(*(reached[below] for below in direct)) if direct else set()
    return {
        room: {below for below in direct if not any(below in reached[other] for other in direct)}
        for room, direct in house.items()
    }


def digest(house: Rooms) -> str:
    """Of the rooms and their imports, 16 hexadecimal digits: the picture holds it."""
    text = ";".join(f"{room}:{','.join(sorted(below))}" for room, below in sorted(house.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_drawn_from(path: Path, house: Rooms) -> bool:
    """Whether the SVG at `path` shows these rooms and imports."""
    return path.exists() and digest(house) in path.read_text()


def draw(house: Rooms, path: Path) -> None:
    """Write the SVG: a box a room, on floors, with an arrow to each room that it needs. The same imports and
    matplotlib give the same bytes. Raises NoMatplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise NoMatplotlib(f"Drawing {path.name} needs matplotlib: pip install -e '.[docs]'") from error
    matplotlib.use("svg")
    from matplotlib import pyplot

    places = _places(house)
    width = max(x for x, _ in places.values()) + BOX_WIDTH
    height = max(y for _, y in places.values()) + BOX_HEIGHT
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kernelgate", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(figsize=(width * 1.05, height * 1.05))
        for room, below in needed(house).items():
            for other in sorted(below):
                (x, y), (to_x, to_y) = places[room], places[other]
                start = (x + BOX_WIDTH / 2, y)
                end = (to_x + BOX_WIDTH / 2, to_y + BOX_HEIGHT)
                axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#8a8a8a", "linewidth": 0.8})
        for room, (x, y) in places.items():
            shade = "#dce9f7" if (HARNESS / room).is_dir() else "#f4f1e6"
            axes.add_patch(pyplot.Rectangle((x, y), BOX_WIDTH, BOX_HEIGHT, facecolor=shade, edgecolor="#555555"))
            axes.text(x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2, room, ha="center", va="center", fontsize=9)
        axes.set_xlim(-0.2, width + 0.2)
        axes.set_ylim(-0.2, height + 0.2)
        axes.set_axis_off()
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Description": digest(house)})
        pyplot.close(figure)


def _places(house: Rooms) -> dict[str, tuple[float, float]]:
    """The lower left corner of each room's box. On a floor rooms stand in the order of the middle of those above that
    need them, so that arrows are short (the barycenter method of Sugiyama, Tagawa and Toda 1981)."""
    floor, users = floors(house), _users(house)
    levels = range(max(floor.values()), -1, -1)
    step = BOX_WIDTH * 1.25
    widest = max(list(floor.values()).count(level) for level in levels)
    places: dict[str, tuple[float, float]] = {}
    for level in levels:
        here = sorted(room for room, height in floor.items() if height == level)
        here.sort(key=lambda room: _middle([places[user][0] for user in users[room] if user in places]))
        left = (widest - len(here)) * step / 2
        places |= {room: (left + i * step, level * FLOOR_HEIGHT) for i, room in enumerate(here)}
    return places


def _users(house: Rooms) -> dict[str, set[str]]:
    reduced = needed(house)
    return {room: {user for user, below in reduced.items() if room in below} for room in house}


def _middle(positions: list[float]) -> float:
    return sum(positions) / len(positions) if positions else 0.0
