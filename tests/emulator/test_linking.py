"""How the emulator's libraries and extensions are linked, and what is said where they cannot be."""

import os
import shutil
from pathlib import Path

import pytest

from harness.device.emulator import building, explaining, libraries, paths, preludes

CANNOT = "ld.gold: error: cannot open /opt/gcc/lib/libstdc++.so: No such file or directory"


@pytest.fixture
def made(tmp_path):
    """A library of one function, linked in a folder."""
    source = tmp_path / "one.cpp"
    source.write_text("int one() { return 1; }\n")
    building.run([paths.compiler(), "-fPIC", "-c", source.name], tmp_path)

    def link():
        libraries._link_with_gold("libone.so", [source], [], tmp_path)
        return tmp_path

    return link


def test_gold_links_where_it_can(made):
    """Where it is not installed the compiler's own linker does."""
    folder = made()
    assert (folder / "libone.so").exists()
    assert bool(libraries.linker_flags(folder)) == bool(shutil.which("ld.gold"))


def test_where_gold_finds_no_library_the_other_linker_does(made, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ld.gold").write_text(f"#!/bin/sh\necho '{CANNOT}' >&2\nexit 1\n")
    (programs / "ld.gold").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    folder = made()
    assert (folder / "libone.so").exists()
    assert libraries.linker_flags(folder) == []


@pytest.mark.parametrize("said", [CANNOT, "/usr/bin/ld: cannot find -lnothing: No such file or directory"])
def test_what_the_linker_lacks_is_said(said):
    log = f"/usr/bin/ld: warning: type changed\n{said}\ncollect2: error: ld returned 1 exit status\n"
    assert str(explaining.explained(log, [])).splitlines()[0] == said


def test_what_was_built_with_one_environments_torch_is_not_taken_in_another(monkeypatch):
    """It would load that one's libraries beside its own, and the process would end."""
    here, version = (libraries.fingerprint(), preludes.headers()), paths.torch_version()
    monkeypatch.setattr(paths, "torch_folder", lambda: Path("/elsewhere/lib/python3.11/site-packages/torch"))
    monkeypatch.setattr(paths, "torch_version", lambda: version)
    assert libraries.fingerprint() != here[0] and preludes.headers() != here[1]
