"""How tests share the machine: with those of other processes, unless they ask to be alone; which go first,
and which are left to `pytest --whole`."""

import os
import tempfile
from pathlib import Path

import pytest

from harness.process import HAS_LARGE_PAGES, SPINS_BRIEFLY
from tests import machine

# The files that take longest, for the others to fill the cores beside them. The documents judge a third of what
# test_cuda_submissions does, and share it.
FIRST = (
    "test_cuda_submissions.py",
    "test_documents_run.py",
    "test_rings.py",
    "test_hostile.py",
    "test_hostile_opened.py",
    "test_shared_builds.py",
    "test_cluster.py",
    "test_wrong_kernels.py",
    "test_api.py",
    "test_build.py",
    "test_watch.py",
    "test_workers.py",
    "test_training.py",
)

# Torch's threads in the tests' own processes, as in a judge: they would spin where four tests share two cores.
for name, value in {**SPINS_BRIEFLY, **HAS_LARGE_PAGES}.items():
    os.environ.setdefault(name, value)

# What tests judge is not kept where their user's evaluations are. Processes of pytest-xdist get it from their first.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["KERNELGATE_DB"] = str(Path(tempfile.mkdtemp(prefix="kernelgate-tests-")) / "results.db")

pytest.register_assert_rewrite("tests.hostile.verdicts")


def pytest_addoption(parser):
    parser.addoption(
        "--whole", action="store_true", help="also run what other tests stand for, as the summary lists it"
    )


@pytest.fixture(scope="session")
def whole(request):
    """Whether all tests were asked for."""
    return request.config.getoption("--whole")


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: some of the file's tests run with nothing beside them; they come last")
    config.addinivalue_line("markers", "whole(why): only run with --whole; `why` says what stands for it otherwise")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two more than there are cores: hostile submissions spend minutes waiting for limits of time, without any work,
    and processes start one after the other."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 2


def pytest_collection_modifyitems(config, items):
    """Files that want the machine alone come last, when no long test is left that they would have to wait for, and
    nobody has to wait for them."""
    items.sort(key=_turn)
    for item in items:
        marker = item.get_closest_marker("whole")
        if marker and not config.getoption("--whole"):
            item.add_marker(pytest.mark.skip(reason=f"NOT RUN HERE, but with --whole: {marker.args[0]}"))


def _turn(item):
    if item.get_closest_marker("alone"):
        return len(FIRST) + 1
    return FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    with machine.shared():
        return (yield)
