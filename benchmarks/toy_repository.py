"""A git repository with one LayerNorm and the gate's rules, for scripts that gate pull requests to it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from common import ROOT

MINE = "submissions/layernorm/mine.py"

# A timed case that moves 436 MB, which an H100 does in some 150 µs, and two small ones.
PROBLEM = """import torch.nn as nn


class Model(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)

    def forward(self, x):
        return self.ln(x)


def case(name, rows, width, **options):
    return dict(name=name, init=[width], shapes=[(*rows, *width)], batch=True, **options)


CASES = [
    case("13312x4096", (13312,), (4096,), distribution="uniform", timed=True,
         scaled=dict(init=[(4096,)], shapes=[(256, 4096)]),
         emulated=dict(init=[(4096,)], shapes=[(32, 4096)])),
    case("16x1024", (16,), (1024,), distribution="rows"),
    case("D = 769", (19,), (769,), distribution="rows"),
]
"""

# Only what changes: all else are the gate's defaults.
RULES = 'problems = ["problems/layernorm.py"]\n'

RIGHT = '''

_Model = ModelNew


class ModelNew(_Model):
    """Asks for memory that is contiguous, which it already is."""

    def forward(self, x):
        return super().forward(x.contiguous())
'''

WRONG = '''

_Model = ModelNew


class ModelNew(_Model):
    """A thousandth too large."""

    def forward(self, x):
        return super().forward(x) * 1.001
'''

UNCHANGED = "\n# Another comment.\n"


@dataclass(frozen=True)
class Toy:
    """The repository."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder.parent / "results.db"

    def begin(self, source: str) -> None:
        """The main branch with that submission."""
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")
        self._write(source)
        self._commit("main")

    def commit(self, branch: str, source: str) -> None:
        """A branch from main with that submission."""
        self.git("checkout", "-q", "-B", branch, "main")
        self._write(source)
        self._commit(branch)

    def _write(self, source: str) -> None:
        for name, text in {
            "problems/layernorm.py": PROBLEM, "kernelgate.toml": RULES, MINE: source,
        }.items():  # fmt: skip
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def git(self, *words: str) -> None:
        name = ("-c", "user.name=toy", "-c", "user.email=toy@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.folder, *name, *words], check=True, stdout=subprocess.DEVNULL)

    def _commit(self, message: str) -> None:
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)

    def eval(
        self, *words: object, python: object = sys.executable, harness: Path = ROOT, **own: str
    ) -> subprocess.CompletedProcess[str]:
        """eval.py of `harness` in it, with `own` variables and all that it prints as stdout. Its log is no workflow's,
        wherever this is run."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | own
        command = [str(python), str(harness / "eval.py"), *map(str, words)]
        return subprocess.run(command, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)  # fmt: skip
