"""Imports run one way: read from the files, so that a shortcut shows in review."""

import ast

import pytest

from harness.paths import ROOT

# What a module of each room may import from the harness. A room is a file or a folder of harness/.
LEAVES = {"errors", "paths", "findings", "verdict", "wire", "inputs"}
ALLOWED = {
    "errors": set(),
    "paths": set(),
    "findings": set(),
    "verdict": set(),
    "wire": set(),
    "inputs": set(),
    "settings": set(),
    "environment": {"paths"},
    "peers": set(),
    "stats": {"verdict"},
    "oracle": set(),
    "roofline": set(),
    "submission": {"errors", "paths"},
    "problem": {"errors", "paths", "inputs"},
    "report": {"verdict", "report", "paths", "ncu", "profiling"},
    "build": {"build"},
    "turns": set(),
    "processes": set(),
    "builds": set(),
    "bubblewrap": {"paths"},
    "trial": {"bubblewrap", "device"},
    "isolation": {"bubblewrap", "errors", "paths", "trial"},
    "sandbox": {"bubblewrap", "builds", "errors", "isolation", "paths", "processes", "turns", "wire"},
    "device": {"device", "errors", "inputs", "paths", "wire", "findings", "build"},
    "worker": {"peers", "worker", "wire", "turns", "build", "device"},
    "differentiate": {"oracle", "wire"},
    "draw": {"oracle", "device", "differentiate", "errors", "inputs", "problem", "settings", "wire"},
    "form": {"oracle", "errors", "wire"},
    "dealing": {"oracle", "device", "wire"},
    "replies": {"errors", "wire"},
    "clock": {"oracle", "dealing", "dropout", "form", "stats", "device", "errors", "replies", "sandbox", "wire"},
    "runner": LEAVES | {"oracle", "device", "draw", "problem", "replies", "sandbox", "settings"},
    "observe": {"oracle", "draw", "errors", "form", "runner", "wire"},
    "dropout": set(),
    "randomness": {"dropout", "draw", "errors", "observe", "oracle", "settings"},
    "backward": {"oracle", "draw", "errors", "observe", "runner"},
    "correctness": LEAVES
    | {
        "oracle",
        "backward",
        "dropout",
        "randomness",
        "device",
        "draw",
        "observe",
        "problem",
        "runner",
        "settings",
        "submission",
    },
    "baselines": LEAVES | {"correctness", "device", "draw", "peers", "problem", "runner", "settings", "submission"},
    "ncu": set(),
    "driving": LEAVES | {"problem", "runner", "settings", "submission"},
    "profiling": LEAVES | {"driving", "ncu", "problem", "roofline", "submission"},
    "sanitizing": LEAVES | {"driving", "problem", "submission"},
    "timing": LEAVES
    | {"oracle", "roofline", "stats", "clock", "dealing", "device", "draw", "problem", "runner", "settings"},
}

FILES = sorted((ROOT / "harness").rglob("*.py"))


def room(path):
    return path.relative_to(ROOT / "harness").parts[0].removesuffix(".py")


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("harness."))


@pytest.mark.parametrize("path", [f for f in FILES if room(f) in ALLOWED], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path):
    assert set(imported_rooms(path)) <= ALLOWED[room(path)]


def test_nothing_imports_the_command_line():
    assert [f for f in FILES if "cli" in set(imported_rooms(f))] == []


def test_the_judge_never_imports_a_submission_and_the_worker_never_a_report():
    for path in FILES:
        rooms = set(imported_rooms(path))
        if room(path) == "worker":
            assert not rooms & {"report", "store", "evaluate", "verdict", "problem"}, path
        else:
            assert "worker" not in rooms, path
