"""Where an installation has no bytecode and gets none, the judge keeps it in its cache; elsewhere it is left alone."""

import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT

PROGRAM = """
from harness import process
process.prepare()
import torch, sys, os
print(torch.__spec__.cached)
print(os.path.exists(torch.__spec__.cached))
print(os.environ.get("PYTHONPYCACHEPREFIX"))
"""


@pytest.fixture
def installed(tmp_path):
    """Stands in for torch: an installation without bytecode."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return package


def loaded(package, *words, **variables):
    """Where the bytecode of the package belongs, whether it is there, and what other processes are told."""
    cache = package.parent.parent / "cache"
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    given |= {"PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}", "KERNELGATE_CACHE": str(cache), **variables}
    ran = subprocess.run(
        [sys.executable, *words, "-c", PROGRAM], env=given, cwd=cache.parent, capture_output=True, text=True, check=True
    )
    cached, there, told = ran.stdout.split()
    return cached, there == "True", told


def test_bytecode_is_kept_in_the_cache_where_python_writes_none(installed):
    kept = installed.parent.parent / "cache" / "bytecode"
    cached, there, told = loaded(installed, "-B")
    assert cached.startswith(f"{kept}/") and there
    assert told == str(kept), "workers are told"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert not (installed / "__pycache__").exists()


def test_an_installation_that_python_writes_to_is_left_alone(installed):
    cached, there, told = loaded(installed)
    assert cached.startswith(f"{installed}/") and there
    assert told == "None"


def test_an_installation_with_bytecode_is_left_alone(installed):
    loaded(installed)
    cached, there, told = loaded(installed, "-B")
    assert cached.startswith(f"{installed}/") and there
    assert told == "None"


def test_what_the_user_says_about_bytecode_stays(installed, tmp_path):
    elsewhere = str(tmp_path / "elsewhere")
    cached, _there, told = loaded(installed, "-B", PYTHONPYCACHEPREFIX=elsewhere)
    assert cached.startswith(f"{elsewhere}/")
    assert told == elsewhere


def test_a_process_that_such_a_one_starts_keeps_bytecode_too(installed):
    kept = installed.parent.parent / "cache" / "bytecode"
    cached, there, _told = loaded(installed, "-B", PYTHONPYCACHEPREFIX=str(kept))
    assert cached.startswith(f"{kept}/") and there


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_bytecode_in_a_folder_of_somebody_else_is_not_loaded(installed):
    kept = installed.parent.parent / "cache" / "bytecode"
    kept.mkdir(parents=True)
    os.chown(kept, 12345, -1)
    cached, _there, told = loaded(installed, "-B")
    assert cached.startswith(f"{installed}/")
    assert told == "None"
