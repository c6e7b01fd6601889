"""The comparison with a GPU: what it reads from a sanitizer and from Nsight Compute."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from types import ModuleType

import pytest

from tests.helpers import ROOT

FOLDER = ROOT / "benchmarks" / "agreement"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# The form of compute-sanitizer 2025: an access out of bounds, a hazard, and an error of a call without a kernel.
OUTPUT = """\
========= COMPUTE-SANITIZER

@@ start bounds_write_one_past_the_end
========= Invalid __global__ write of size 4 bytes
=========     at bounds_write_one_past_the_end::kernel(float *)+0x50 in bounds_write_one_past_the_end.cu:4
=========     by thread (0,0,0) in block (32,0,0)
=========

@@ done bounds_write_one_past_the_end {"raised": "CUDA error: unspecified launch failure", "y": ""}
@@ start race_two_writers
========= Error: Race reported between Write access at void race_two_writers::kernel<(int)4>(float *)+0x90 in \
/tmp/race_two_writers.cu:7
=========     and Write access at void race_two_writers::kernel<(int)4>(float *)+0x90 in /tmp/race_two_writers.cu:7
=========
@@ done race_two_writers {"raised": "", "y": "abc"}
@@ start launch_empty_grid
========= Program hit cudaErrorInvalidConfiguration (error 9) due to "invalid configuration argument" on CUDA API \
call to cudaLaunchKernel.
=========
========= ERROR SUMMARY: 3 errors
"""


@pytest.fixture
def table(tmp_path):
    corpus = _module("corpus")
    table = corpus.Table(tmp_path / "out.json")
    reader = corpus.Reader("memcheck", table)
    for line in OUTPUT.splitlines():
        reader.take(line)
    reader.end("timed out")
    table.save()
    return table


def test_each_report_belongs_to_its_kernel_and_names_its_line(table):
    overrun = table.cases["bounds_write_one_past_the_end"]["memcheck"]
    assert overrun.outcome == "raised"
    assert overrun.reports == ["Invalid __global__ write of size 4 bytes (bounds_write_one_past_the_end.cu:4)"]
    race = table.cases["race_two_writers"]["memcheck"]
    assert race.outcome == "ran"
    assert len(race.reports) == 1
    assert race.reports[0].endswith("(race_two_writers.cu:7)")


def test_a_case_that_did_not_end_says_so_and_keeps_its_report(table):
    launch = table.cases["launch_empty_grid"]["memcheck"]
    assert launch.outcome == "timed out"
    assert launch.reports[0].startswith("Program hit cudaErrorInvalidConfiguration")


def test_every_case_is_run_once_by_each_tool():
    corpus = _module("corpus")
    names = [name for shard in corpus.shards(9) for name in shard]
    assert sorted(names) == sorted(f.stem for f in corpus.corpus_sources.cases())


def test_counters_are_given_to_the_call_whose_mark_stands_before_them():
    counters = _module("counters")
    table = ['"ID","Kernel Name","a.sum"', '"","","byte"', '"0","spin_kernel","0"', '"1","rows","1,024"',
             '"2","rows","6"', '"3","spin_kernel","0"', '"4","columns","7"']  # fmt: skip
    assert counters.by_call(table, ["a"]) == [{"rows": {"launches": 2, "a": 1030.0}},
                                              {"columns": {"launches": 1, "a": 7.0}}]  # fmt: skip


# What pybind11 leaves of an extension called `faults_on_gpu`, in plain C.
C = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "faults_on_gpu", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_faults_on_gpu(void) { return PyModule_Create(&module); }
"""


def test_the_process_loads_an_extension_by_the_name_that_it_was_built_with(tmp_path):
    (tmp_path / "faults.c").write_text(C)
    library = tmp_path / "faults_on_gpu.so"
    command = ["cc", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"], "-o", library, tmp_path / "faults.c"]
    subprocess.run(command, check=True)
    assert _module("corpus_process").load(library).__name__ == "faults_on_gpu"
