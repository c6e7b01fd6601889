"""The cache stays within its limit and takes nothing from those who use it; a full disk is said in a sentence."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from harness.device.emulator import building
from harness.paths import ROOT
from harness.storage import cache
from harness.storage.disk import folder_bytes
from tests.helpers import run_eval

KIB, MIB, GIB = 2**10, 2**20, 2**30

CONTROL = ROOT / "tests/hostile/form/control.py"
SMALL = ("--problem", str(ROOT / "tests/fixtures/problems/small_layernorm.py"), "--device", "cpu")

# A process that uses the cache until it is told that it may end.
USER = "from harness.storage.cache import in_use\nwith in_use():\n    print('uses it', flush=True)\n    input()\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty cache that may have 1 MiB."""
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELGATE_CACHE_GIB", str(MIB / GIB))
    return tmp_path / "cache"


def fill(folder, size, used_s):
    """A folder of so many bytes that was last used so many seconds after 1970."""
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(b"x" * size)
    os.utime(folder, (used_s, used_s))
    return folder


def start_user():
    user = subprocess.Popen(
        [sys.executable, "-c", USER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert user.stdout.readline() == "uses it\n"
    return user


# ---------------------------------------------------------------------- the cache


def test_what_was_not_used_for_longest_goes_first_until_the_rest_is_within_the_limit(root):
    oldest = fill(root / "emulator" / "prelude-1", 600 * KIB, used_s=1)
    old = fill(root / "build" / "2", 600 * KIB, used_s=2)
    compiled = fill(root / "compile", 300 * KIB, used_s=3)
    new = fill(root / "emulator" / "prelude-4", 300 * KIB, used_s=4)
    with cache.in_use():
        assert oldest.exists()
    assert [folder.exists() for folder in (oldest, old, compiled, new)] == [False, False, True, True]
    assert cache.size_bytes() < MIB


def test_what_is_used_again_outlives_what_is_newer(root):
    used, newer = (fill(root / "build" / name, 600 * KIB, used_s=1) for name in ("a", "b"))
    made = []
    assert building.once(used, made.append) == used
    with cache.in_use():
        pass
    assert (made, used.exists(), newer.exists()) == ([], True, False)


def test_nothing_is_taken_from_another_process_and_the_last_one_tidies_up(root):
    folder = fill(root / "emulator" / "prelude", 2 * MIB, used_s=1)
    with start_user() as user:
        with cache.in_use():
            pass
        assert (folder / "content").stat().st_size == 2 * MIB
        user.communicate("\n")
    assert not folder.exists()


def test_what_a_killed_process_had_half_removed_goes_too(root):
    half = fill(root / ".removed-prelude", 10, used_s=1)
    kept = fill(root / "build" / "kept", 10, used_s=1)
    with cache.in_use():
        pass
    assert (half.exists(), kept.exists()) == (False, True)


def test_an_evaluation_leaves_the_cache_within_its_limit(root, tmp_path):
    old = fill(root / "emulator" / "prelude", 2 * MIB, used_s=1)
    assert run_eval(CONTROL, *SMALL).code == 0
    assert not old.exists()


def test_env_says_where_the_cache_is_how_large_and_what_it_may_have(root):
    fill(root / "build" / "1", 100 * MIB, used_s=1)
    said = run_eval("env", json_results=False, env={"KERNELGATE_CACHE_GIB": "2.5"}).stdout
    facts = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert (facts["cache"], facts["cache_gib"], facts["cache_limit_gib"]) == (str(root), "0.098", "2.5")


def test_what_lies_deeper_than_a_path_can_name_is_counted(tmp_path):
    """In a process of its own, since only a working folder gets there."""
    go_down = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    subprocess.run([sys.executable, "-c", f"{go_down}open('f', 'wb').write(bytes(1 << 20))"], cwd=tmp_path, check=True)
    try:
        assert folder_bytes(tmp_path) >= MIB
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_folder_that_is_gone_takes_nothing(tmp_path):
    assert folder_bytes(tmp_path / "gone") == 0


@pytest.mark.parametrize("limit", ["plenty", "-1", "nan", "inf"])
def test_a_limit_that_is_none_is_a_sentence(limit):
    run = run_eval(CONTROL, *SMALL, env={"KERNELGATE_CACHE_GIB": limit})
    assert run.code == 3
    assert f"KERNELGATE_CACHE_GIB is '{limit}'; it should be a number of GiB" in run.stderr


# ---------------------------------------------------------------------- a full disk


def test_a_full_disk_where_the_report_goes():
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "eval.py", "list"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert run.returncode == 3
    assert run.stderr.startswith("eval.py: The disk is full: No space left on device. Make room")
    assert len(run.stderr.splitlines()) == 1


def test_a_compiler_that_finds_no_room_is_a_full_disk_and_no_wrong_source(tmp_path):
    (tmp_path / "empty.cpp").touch()
    with pytest.raises(OSError) as raised:
        building.run(["g++", "-E", "empty.cpp", "-o", "/dev/full"], tmp_path)
    assert raised.value.errno == errno.ENOSPC


def test_no_room_to_build_the_emulator(root, tmp_path):
    compiler = tmp_path / "full-g++"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n'
        'echo "fatal error: error writing to /tmp/x.s: No space left on device" >&2; exit 1\n'
    )
    compiler.chmod(0o755)
    run = run_eval(CONTROL, *SMALL, "--device", "emulator", env={"CXX": str(compiler)})
    assert run.code == 3
    assert "The disk is full" in run.stderr
    assert f"KERNELGATE_CACHE the cache {root}" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("source", "size_mib", "left_mib"),
    [("", 4, 4), ("open('filled', 'wb').write(bytes(2 << 20))\nraise OSError('no room')\n", 257, 255)],
    ids=["before a worker starts", "while it builds"],
)
def test_without_room_nothing_is_said_about_a_submission(source, size_mib, left_mib, tmp_path):
    """A build that finds no room would look like a submission that does not build."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "submission.py").write_text(source)
    boxed = ["bwrap", "--dev-bind", "/", "/", "--size", str(size_mib * MIB), "--tmpfs", str(disk)]
    if not shutil.which("bwrap") or subprocess.run([*boxed, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED HERE: bubblewrap, which makes a small disk, does not work on this machine")
    arguments = ["eval.py", str(tmp_path / "submission.py"), *SMALL, "--no-timing", "--isolation", "basic"]
    run = subprocess.run(
        [*boxed, sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(disk)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 3
    assert f"The disk is nearly full: {disk}, where workers have their files, has {left_mib} MiB left" in run.stderr
    assert "Traceback" not in run.stderr
