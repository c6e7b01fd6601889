"""Imports run one way: read from the files, so that a shortcut shows in review."""

import ast
import graphlib
import re
import sys

import pytest

from harness.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from documents.rooms import imported_by, room_of, rooms

# The rooms of the harness, folders and files, and what each may import of the others. A room stands below those that
# it imports.
LOWEST = ("explanations", "garbage", "inputs", "layouts", "norms", "notes", "paths", "reasons", "settings", "version")
LEAVES = {
    "errors",
    "explanations",
    "garbage",
    "inputs",
    "layouts",
    "notes",
    "paths",
    "reasons",
    "records",
    "settings",
} | {"verdict"}
ALLOWED = {
    "cli": {"crash", "environment", "errors", "exits", "isolation", "options", "paths", "plan", "process", "report"}
    | {"cluster", "events", "run", "shares"}
    | {"storage", "store", "verdict"},
    "again": {"device", "errors", "events", "paths", "plan", "problem", "report", "run", "settings", "storage"}
    | {"store", "submission", "verdict", "version"},
    "api": {"errors", "lanes", "verdict"},
    "cluster": {"api", "device", "environment", "errors", "events", "isolation", "lanes", "paths", "plan", "reasons"}
    | {"build", "judging", "process", "report", "run", "storage", "store", "submission", "verdict"},
    "serve": {"crash", "errors", "lanes", "reasons", "report", "verdict"},
    "shares": {
        "crash",
        "device",
        "errors",
        "events",
        "lanes",
        "plan",
        "process",
        "reasons",
        "run",
        "submission",
        "verdict",
    },
    "lanes": {"crash", "device", "environment", "errors", "events", "isolation", "judge", "paths", "plan", "problem"}
    | {"process", "reasons", "report", "run", "settings", "storage", "store", "verdict", "submission"},
    "watch": {"comparison", "device", "errors", "lanes", "paths", "plan", "report", "submission", "timed", "verdict"},
    "options": {"against", "errors", "exits", "isolation", "paths", "plan", "report", "settings", "verbs"}
    | {"version"},
    "verbs": {"again", "comparison", "device", "gate", "isolation", "notes", "run"}
    | {"device", "environment", "errors", "judge", "exits", "oracle", "paths", "plan", "problem", "report"}
    | {"lanes", "serve", "settings", "storage", "store", "submission", "tools", "verdict", "watch"},
    "exits": {"errors", "verdict"},
    "report": {"comparison", "errors", "events", "explanations", "gate", "notes", "reasons", "records", "settings"}
    | {"store", "submission", "timed", "tools", "verdict"},
    "gate": {"comparison", "device", "errors", "exits", "paths", "records", "store", "submission", "timed", "timing"}
    | {"verdict"},
    "comparison": {"notes", "timed", "verdict"},
    "timed": {"verdict"},
    "store": {"device", "environment", "errors", "events", "plan", "submission", "verdict", "version"},
    "run": {
        "against",
        "crash",
        "device",
        "errors",
        "judge",
        "events",
        "garbage",
        "isolation",
        "judging",
        "plan",
        "problem",
        "reasons",
        "settings",
    }
    | {"settings", "storage", "submission", "tools", "verdict"},
    "plan": {"against", "device", "errors", "events", "isolation", "paths", "settings", "submission", "tools"}
    | {"pairing"},
    "pairing": set(),
    "crash": set(),
    "process": {"isolation", "paths", "storage"},
    "installed": set(),
    "tools": LEAVES | {"build", "events", "judging", "problem", "protocol", "submission", "timing"},
    "judge": LEAVES
    | {"against", "events", "fitting"}
    | {"device", "isolation", "judging", "oracle", "problem", "protocol", "submission", "timing"},
    "fitting": {"device", "memory", "notes", "oracle", "problem", "timing"},
    "timing": LEAVES | {"device", "isolation", "judging", "oracle", "problem", "protocol"},
    "against": {"errors", "peers"},
    "judging": LEAVES
    | {"against", "events", "device", "diagnosis", "isolation", "norms", "oracle", "peers", "problem", "protocol"}
    | {"build", "memory", "submission", "surroundings"},
    "diagnosis": {"explanations", "oracle", "problem"},
    "oracle": LEAVES | {"device", "problem", "protocol", "surroundings"},
    "isolation": {"device", "errors", "memory", "paths", "protocol", "reasons", "storage"},
    "worker": {"against", "build", "device", "errors", "garbage", "layouts", "norms", "peers", "protocol", "reasons"}
    | {"records", "surroundings"},
    "device": {
        "build",
        "errors",
        "layouts",
        "memory",
        "paths",
        "protocol",
        "reasons",
        "records",
        "storage",
        "submission",
    },
    "build": {"norms", "errors", "protocol", "records"},
    "protocol": {"errors", "reasons", "records"},
    "peers": {"errors"},
    "problem": {"errors", "inputs", "layouts", "paths", "protocol", "settings"},
    "submission": {"errors", "paths"},
    "environment": {"device", "paths", "storage", "version"},
    "memory": {"storage"},
    "storage": {"errors", "paths"},
    "events": {"verdict"},
    "surroundings": {"errors"},
    "verdict": {"explanations", "notes", "reasons", "records"},
    "records": {"reasons"},
    "errors": {"reasons", "records"},
    **{leaf: set() for leaf in LOWEST},
}

FILES = sorted((ROOT / "harness").rglob("*.py"))


def imported_modules(path, names):
    """Those of the harness's modules `names` that `path` imports, where it is loaded or in a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from {inner, node.module} & names if inner not in names else {inner}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_its_room(path):
    if path != ROOT / "harness" / "__init__.py":
        assert set(imported_by(path)) - {room_of(path)} <= ALLOWED[room_of(path)]


def test_imports_have_no_circles():
    names = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in FILES}
    imports = {name: set(imported_modules(file, names.keys())) for name, file in names.items()}
    order = graphlib.TopologicalSorter(imports)
    assert len(list(order.static_order())) == len(names)  # raises CycleError with the circle


def test_nothing_imports_the_command_line():
    assert [f for f in FILES if "cli" in set(imported_by(f))] == []


def test_the_judge_never_imports_a_submission_and_the_worker_never_a_report():
    for path in FILES:
        imported = set(imported_by(path))
        if room_of(path) != "worker":
            assert "worker" not in imported, path
        else:
            assert not imported & {"report", "judge", "judging", "timing", "verdict", "problem"}, path


def test_the_plan_names_every_room():
    """harness/__init__.py is what a newcomer opens first: a line for each room, and none for what is gone."""
    lines = (ROOT / "harness" / "__init__.py").read_text().splitlines()
    named = {line.split()[0] for line in lines if re.match(r"[a-z]+/? {2,}\S", line)}
    folders = {path.name for path in (ROOT / "harness").iterdir() if path.is_dir()}
    assert named == {f"{room}/" if room in folders else room for room in rooms()}
