"""Builds that submissions share: found again by what is built, and never what another submission made of them."""

import re
import select
from types import SimpleNamespace

import pytest

from harness import paths
from harness import run as run_module
from harness.build import called
from harness.build.called import written
from harness.device.memory_file import MemoryFile
from harness.events import Finished
from harness.isolation import builds as builds_of
from harness.isolation.levels import choose_isolation
from harness.isolation.starter import Starter, kept_zygotes
from harness.judging import building
from harness.judging.building import Ahead, Builds, is_shared
from harness.plan import Arguments, make_plan
from harness.protocol.extension import Extension, SourceText
from harness.protocol.wire import Wanted
from harness.run import run
from harness.submission import read_submission
from tests.helpers import ROOT, run_eval

PROBLEM = ROOT / "tests" / "fixtures" / "problems" / "small_layernorm.py"

# Without torch's headers, and without Python's: a second's build.
NATIVE = '''
import ctypes
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" int answer() {  // what is asked for
    return 41;
}
"""
library = load_inline(name="shift", cpp_sources=SOURCE, extra_cflags=["-O1"], no_implicit_headers=True,
                      is_python_module=False)


class ModelNew(nn.LayerNorm):
    def forward(self, x):
        raise RuntimeError(f"the answer is {ctypes.CDLL(library).answer()}")
'''


class Cache:
    """Submissions of one name that are judged with a cache of their own."""

    def __init__(self, folder):
        self._folder = folder
        self._environment = {"KERNELGATE_CACHE": str(folder / "cache")}

    def judged(self, text):
        """What the submission said, and whether it was built from the cache."""
        path = self._folder / "submission.py"
        path.write_text(text)
        (evaluation,) = self._evaluations(path)
        return evaluation["message"], (evaluation["build"] or {}).get("cached")

    def evaluated(self, folder):
        """Each submission of a folder, with what it said."""
        return [(evaluation["submission"], evaluation["message"]) for evaluation in self._evaluations(folder)]

    def _evaluations(self, path):
        run = run_eval(path, "--problem", PROBLEM, "--device", "cpu", env=self._environment)
        return run.results["evaluations"]

    def shared(self):
        """The libraries that all share, and what is in them."""
        return {path: path.read_bytes() for path in (self._folder / "cache" / "shared").rglob("*.so")}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_only_what_changes_a_build_is_built_again(cache):
    said, cached = cache.judged(NATIVE)
    assert "the answer is 41" in said and cached is False
    for before, after in (
        ("class ModelNew(nn.LayerNorm):", 'class ModelNew(nn.LayerNorm):\n    """A change of Python."""\n'),
        ("// what is asked for", "/* of C++ */  // what nobody asks for"),
        ("    return 41;", "\treturn   41;"),
    ):
        said, cached = cache.judged(NATIVE.replace(before, after))
        assert "the answer is 41" in said and cached is True, after
    for before, after, answer in (
        ("return 41", "return 42", 42),
        ('"-O1"', '"-O1", "-DUNUSED"', 41),
        ('name="shift"', 'name="other"', 41),
        ("import ctypes", "\nimport ctypes", 41),
    ):
        said, cached = cache.judged(NATIVE.replace(before, after))
        assert f"the answer is {answer}" in said and cached is False, after


# What a submission's Python may do to its build; none of it changes what NATIVE gets. One calls load_inline with other
# text than the one that is written.
OTHER_TEXT = NATIVE.replace('load_inline(name="shift", cpp_sources=SOURCE', 'load_inline(name="shift", cpp_sources=lie')
OTHER_TEXT = OTHER_TEXT.replace("library = ", 'lie = SOURCE.replace("41", "666")\nlibrary = ')

# Puts a library of its own into the place of what it was lent and has loaded, for whoever takes it from there.
FORGED = NATIVE.replace(
    "\n\nclass ModelNew",
    """
import os, pathlib, subprocess

lent = pathlib.Path(library)
(lent.parent / "forged.cpp").write_text(SOURCE.replace("41", "666"))
subprocess.run(["g++", "-shared", "-fPIC", "forged.cpp", "-o", "forged.so"], cwd=lent.parent, check=True)
os.replace(lent.parent / "forged.so", lent)
(lent.parent / "forged.cpp").unlink()


class ModelNew""",
)

# Has load_inline take its own library for what the sources of NATIVE give, before the judge is asked.
PATCHED = NATIVE.replace(
    "library = load_inline(",
    """
from harness.build.canonical import canonical
from harness.protocol.extension import Extension, SourceText

Extension.digest = lambda self, fingerprint, digest=Extension.digest: digest(TRUE, fingerprint)
TRUE = Extension("shift", (SourceText(canonical(SOURCE), "submission.py", 6),), extra_cflags=("-O1",),
                 no_implicit_headers=True)
SOURCE = SOURCE.replace("41", "666")
library = load_inline(""",
)


@pytest.mark.parametrize(
    ("hostile", "answer"),
    [(OTHER_TEXT, "666"), (FORGED, "41"), (PATCHED, "666")],
    ids=["calls with other text", "forges what it is lent", "patches the key"],
)
@pytest.mark.parametrize("first", [True, False], ids=["before the other", "behind the other"])
def test_a_submission_gets_what_it_asks_for_and_changes_nothing_for_others(hostile, answer, first, cache):
    before = {}
    if not first:
        cache.judged(NATIVE)
        before = cache.shared()
        assert before
    said, _ = cache.judged(hostile)
    assert f"the answer is {answer}" in said
    after = cache.shared()
    assert before.items() <= after.items()
    said, _ = cache.judged(NATIVE)
    assert "the answer is 41" in said
    assert after.items() <= cache.shared().items()


@pytest.mark.parametrize(
    "flags",
    [
        {"extra_cflags": ("-O3", "-DWIDTH=4096", "-std=c++20", "-fno-strict-aliasing", "-march=native")},
        {
            "extra_cuda_cflags": (
                "-O3",
                "--use_fast_math",
                "-gencode=arch=compute_90,code=sm_90",
                "-Xptxas",
                "-lineinfo",
            )
        },
        {"extra_ldflags": ("-lcublas",)},
    ],
)
def test_what_compilers_make_of_sources_is_shared(flags):
    assert is_shared(Extension("a", (), **flags))


@pytest.mark.parametrize(
    "flags",
    [
        {"extra_cflags": ("-fplugin=/tmp/own.so",)},
        {"extra_cflags": ("-wrapper", "sh,-c,true")},
        {"extra_cflags": ("-B/tmp",)},
        {"extra_cflags": ("@/tmp/flags",)},
        {"extra_cflags": ("-specs=/tmp/specs",)},
        {"extra_cflags": ("-Wa,--defsym", "-Wl,-T,/tmp/script")},
        {"extra_cuda_cflags": ("-ccbin=/tmp/g++",)},
        {"extra_cuda_cflags": ("-Xcompiler", "-fplugin=/tmp/own.so")},
        {"extra_ldflags": ("/tmp/own.so",)},
        {"extra_include_paths": ("/tmp",)},
    ],
)
def test_what_may_run_a_program_or_read_other_files_is_not_shared(flags):
    assert not is_shared(Extension("a", (), **flags))


@pytest.mark.parametrize(
    "text",
    [
        '#include "/tmp/row.h"',
        "  #  include </tmp/row.h>",
        '#include "../row.h"',
        "#include <a/../../../tmp/row.h>",
        '#inc\\\nlude "/tmp/row.h"',
        '#inc\\ \nlude "/tmp/row.h"',  # a blank behind the backslash is let through
        '#inc??/\nlude "/tmp/row.h"',
        '#/* so */include "/tmp/row.h"',
        '%:include "/tmp/row.h"',
        '#define HEADER "/tmp/row.h"\n#include HEADER',
        '#if __has_include("/tmp/row.h")\n#endif',
        '#define ROW "/tmp/row.h"\n#if __has_include(ROW)\n#endif',
        "#if defined(__has_include) && __has_include(<../row.h>)\n#endif",
        'asm(".incbin \\"/tmp/row.bin\\"");',
    ],
)
def test_what_reads_a_file_by_its_path_is_not_shared(text):
    assert not is_shared(Extension("a", (SourceText(f"#include <cmath>\n{text}\n"),)))


@pytest.mark.parametrize(
    "text", ["#/*", "#/**/", "#ifdef ", "defined(", "__has_include(", "#", "include", "/*", "# ", "\\ ", "incbi"]
)
def test_a_source_that_is_made_to_be_slow_to_read_is_read(text):
    """A pattern that backtracks would hold the judge for hours."""
    is_shared(Extension("a", (SourceText(text * 200_000),)))


def test_what_includes_headers_by_name_is_shared():
    text = '#include <torch/extension.h>  // by name\n#  include "cub/cub.cuh"\n// what it must include: "/tmp"\n'
    text += "#ifdef __has_include\n#if __has_include(<cuda_bf16.h>)\n#endif\n#endif\n"
    assert is_shared(Extension("a", (SourceText(text),)))


def test_a_header_that_is_named_by_its_path_is_refused(tmp_path):
    """What is built of it would be another once it is: nobody's verdict may depend on that."""
    (tmp_path / "row.h").write_text("inline int two() { return 2; }\n")
    path = tmp_path / "mine.py"
    path.write_text(NATIVE.replace('SOURCE = """', f'SOURCE = """\n#include "{tmp_path}/row.h"', 1))
    (evaluation,) = run_eval(path, "--problem", "layernorm", "--device", "cpu", "-k", "4x128").results["evaluations"]
    assert (evaluation["reason"], "beside the submission" in evaluation["message"]) == ("build_failed", True)


# Who builds for a GPU needs none.
@pytest.mark.parametrize(("device", "architecture"), [("cpu", ""), ("cuda", "9.0")])
def test_what_is_built_ahead_is_lent_to_who_asks_for_it(tmp_path, monkeypatch, device, architecture):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "submission.py"
    path.write_text(NATIVE)
    memory = MemoryFile()
    starter = Starter(device, memory.fd, choose_isolation("auto", "cpu"))
    try:
        builds = Builds(device, starter, architecture=architecture)
        builds.begin_ahead(read_submission(path), check=False)
        monkeypatch.delattr(Starter, "take")  # nobody else can build it
        order = builds.asked_for(Wanted(written(path)), check=False)
        handed = []
        assert order.finish(lambda stop: None, handed.append).refused == []
    finally:
        starter.end()
    assert [paths.shared_builds() / digest for digest in handed] == [*paths.shared_builds().iterdir()]


def test_what_one_submission_did_not_ask_for_is_ended_and_what_is_built_for_the_next_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    submissions = []
    for name, answer in (("first", "41"), ("next", "42")):
        (tmp_path / f"{name}.py").write_text(NATIVE.replace("41", answer))
        submissions.append(read_submission(tmp_path / f"{name}.py"))
    memory, ahead = MemoryFile(), Ahead()
    starter = Starter("cpu", memory.fd, choose_isolation("auto", "cpu"))
    try:
        builds = Builds("cpu", starter, ahead)
        for submission in submissions:
            builds.begin_ahead(submission, check=False)
        of_first, of_next = ahead.workers
        builds.end(submissions[0])
        assert (of_first.has_ended, of_next.has_ended) == (True, False)
        assert ahead.workers == [of_next]
        builds.end()
        assert of_next.has_ended
    finally:
        starter.end()


def test_what_is_built_ahead_is_kept_where_it_is_finished_before_anybody_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "submission.py"
    path.write_text(NATIVE)
    memory, ahead = MemoryFile(), Ahead()
    starter = Starter("cpu", memory.fd, choose_isolation("auto", "cpu"))
    try:
        builds = Builds("cpu", starter, ahead)
        builds.begin_ahead(read_submission(path), check=False)
        (worker,) = ahead.workers
        ahead.finish()
        assert worker.has_ended
        assert not builds.asked_for(Wanted(written(path)), check=False).is_new
    finally:
        starter.end()


def test_a_build_goes_to_another_machines_cache_where_it_is_one(tmp_path):
    digest, files = "0" * 32, {"shift_0123456789abcdef.so": b"\x7fELF", "kernels.json": b"[]", "sources.json": b"{}"}
    builds_of.put(tmp_path, digest, files)
    assert builds_of.read(tmp_path / digest) == files
    builds_of.put(tmp_path, digest, files | {"kernels.json": b"[1]"})
    assert builds_of.read(tmp_path / digest) == files, "what is there stays"
    for name, wrong in {
        "../" + "1" * 29: files,
        "1" * 32: files | {"another": b""},
        "2" * 32: {"shift_0123456789abcdef.so": b"", "kernels.json": b"", "../sources.json": b""},
    }.items():
        builds_of.put(tmp_path, name, wrong)
    assert [path.name for path in tmp_path.iterdir()] == [digest]


def test_so_many_are_built_ahead_as_there_is_room_for(monkeypatch):
    ahead, free_bytes = Ahead(), [building.ROOM_BYTES]
    monkeypatch.setattr(building.memory, "free_bytes", lambda: free_bytes[0])
    workers = [SimpleNamespace(has_answered=False) for _ in range(building.MOST_AT_ONCE)]
    room = []
    for number, worker in enumerate(workers):
        room.append(ahead.has_room)
        ahead.add(str(number), SimpleNamespace(sha256=str(number)), lambda worker=worker: worker)
    assert [*room, ahead.has_room] == [True, True, False]
    workers[0].has_answered = True
    assert ahead.has_room
    free_bytes[0] -= 1
    assert not ahead.has_room
    workers[1].has_answered = True
    assert ahead.has_room
    for number in range(2, building.MOST_KEPT * building.MOST_AT_ONCE):
        assert ahead.has_room
        ahead.add(str(number), SimpleNamespace(sha256=str(number)), lambda: SimpleNamespace(has_answered=True))
    assert not ahead.has_room, "nobody has asked for any of them"


def test_a_file_of_thousands_is_looked_at_once_for_its_build_and_only_the_next_ones_are(monkeypatch):
    ahead, begun, looked_at = Ahead(), [], []
    monkeypatch.setattr(run_module, "is_prepared", lambda device, paths, check: looked_at.append(paths[0]) or True)
    builds = {"cpu": SimpleNamespace(begin_ahead=lambda each, check, gently: begun.append(each.path))}
    thousands = [("cpu", SimpleNamespace(path=number, sha256=str(number))) for number in range(3000)]
    for first in range(3):
        run_module._build(thousands[first:], builds, ahead, check=False)
    assert looked_at == begun == list(range(3 * ahead.most_kept))


def test_who_has_started_to_build_has_not_answered(tmp_path, monkeypatch):
    """That it has started is a message, too."""
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "submission.py"
    path.write_text(NATIVE)
    memory, ahead = MemoryFile(), Ahead()
    with kept_zygotes():
        starter = Starter("cpu", memory.fd, choose_isolation("auto", "cpu"))
        try:
            worker = starter.take()
            assert select.select([worker._conversation._channel], [], [], 60)[0]
            assert not worker.has_answered
            worker.end()
            Builds("cpu", starter, ahead).begin_ahead(read_submission(path), check=False)
            (builder,) = ahead.workers
            assert select.select([builder._conversation._channel], [], [], 60)[0]
            assert not builder.has_answered
            ahead.finish()
        finally:
            starter.end()
    assert [*paths.shared_builds().iterdir()]


def test_on_many_processors_more_are_built_ahead_as_far_as_there_is_memory(monkeypatch):
    monkeypatch.setattr(building, "PROCESSORS", range(16))
    monkeypatch.setattr(building.memory, "free_bytes", lambda: 3 * building.ROOM_BYTES)
    assert building.most_ahead() == 7
    ahead, begun = Ahead(building.most_ahead()), []
    while ahead.has_room:
        begun.append(SimpleNamespace(has_answered=False))
        ahead.add(str(len(begun)), SimpleNamespace(sha256=str(len(begun))), lambda: begun[-1])
    assert len(begun) == 4, "the fourth beside three that will need the rest"


def test_what_is_built_ahead_outlives_the_judge_that_began_it(tmp_path, monkeypatch):
    """And is lent at the next problem, whose workers come from another Starter."""
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "submission.py"
    path.write_text(NATIVE)
    memory, ahead, handed = MemoryFile(), Ahead(), []
    with kept_zygotes():
        first, second = (Starter("cpu", memory.fd, choose_isolation("auto", "cpu")) for _ in range(2))
        try:
            Builds("cpu", first, ahead).begin_ahead(read_submission(path), check=False)
            unused = first.take()
            first.end(kept=ahead.workers)
            assert unused.has_ended
            monkeypatch.delattr(Starter, "take")  # nobody else can build it
            order = Builds("cpu", second, ahead).asked_for(Wanted(written(path)), check=False)
            assert order.finish(lambda stop: None, handed.append).refused == []
        finally:
            second.end()
    assert [paths.shared_builds() / digest for digest in handed] == [*paths.shared_builds().iterdir()]
    assert not ahead.workers


def test_the_next_problems_first_submission_is_built_while_the_last_of_this_one_is_judged(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGATE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "layernorm" / "mine.py"
    path.parent.mkdir()
    path.write_text('ALSO_FOR = ["layernorm_dtypes"]\n' + NATIVE)
    happened = []
    monkeypatch.setattr(Builds, "begin_ahead", lambda builds, mine, check, gently=False: happened.append(mine.name))

    def tell(event):
        if isinstance(event, Finished):
            happened.append(event.evaluation.problem)

    run(make_plan(Arguments(paths=(path,), device="cpu", select="no rows", timing=False)), tell)
    # Each is built ahead of its own import; between, the second ahead of its turn.
    assert happened == ["mine", "mine", "layernorm", "mine", "layernorm_dtypes"]


def test_submissions_in_one_run_get_their_own_builds(cache, tmp_path):
    """What is written in the last, which asks for something else, is built ahead and used by nobody."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    (folder / "a_first.py").write_text(NATIVE)
    (folder / "b_next.py").write_text(NATIVE.replace("41", "42"))
    (folder / "c_other_text.py").write_text(OTHER_TEXT)
    said = cache.evaluated(folder)
    assert [(name, re.search(r"the answer is (\d+)", message)[1]) for name, message in said] == [
        ("a_first", "41"),
        ("b_next", "42"),
        ("c_other_text", "666"),
    ]
    assert len(cache.shared()) == 3


WRITTEN = '''
import torch.utils.cpp_extension

HEAD = "int f();"
FLAGS = ["-O2", "-DA"]
BODY = HEAD + """
int g();
int h();
int i();
"""
module = torch.utils.cpp_extension.load_inline("name", BODY, functions={"f": "what it does"}, extra_cflags=FLAGS)
'''


def test_what_is_written_is_what_is_called(tmp_path):
    path = tmp_path / "submission.py"
    path.write_text(WRITTEN)
    body = "int f();\nint g();\nint h();\nint i();\n"
    assert written(path) == [called.extension(path, "name", body, None, {"f": "what it does"}, ["-O2", "-DA"])]


@pytest.mark.parametrize(
    "call",
    [
        "load_inline('name', source())",
        "load_inline(**options)",
        "load_inline('name', unknown)",
        "load_inline('name', source)\nsource = source + 'int f();'",
        "load_inline('name', ['int f();', 3 + 'a'])",
        "load_inline()",
        "load_inline(",
        "load_inline('name', 'int f();', extra_cflags=[1])",
        "load_inline('name', source)\nsource = ''\n" + "source = source + source\n" * 2,
        "load_inline('name', n40)\nn0 = ''\n" + "".join(f"n{i + 1} = n{i} + n{i}\n" for i in range(40)),
        "load_inline('name', n40)\nn0 = 'int f();'\n" + "".join(f"n{i + 1} = n{i} + n{i}\n" for i in range(40)),
    ],
)
def test_what_is_not_literal_is_not_guessed(call, tmp_path):
    path = tmp_path / "submission.py"
    path.write_text(call)
    assert written(path) == []


def test_what_no_message_can_say_is_built_by_who_asks(cache):
    """A flag of another type, and a source longer than a message: the judge is asked for neither."""
    said, _ = cache.judged(NATIVE.replace('extra_cflags=["-O1"]', 'extra_cflags=["-O1", 1]'))
    assert "'int' object has no attribute" in said
    said, cached = cache.judged(NATIVE.replace("cpp_sources=SOURCE", 'cpp_sources=SOURCE + "\\n" * (1 << 20)'))
    assert "the answer is 41" in said and cached is False
    assert cache.shared() == {}


IN_THREADS = """
from threading import Thread

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

built = {}


def build(number):
    source = f"int answer() {{ return {number}; }}"
    built[number] = load_inline(name=f"answer_{number}", cpp_sources=source, functions=["answer"]).answer


threads = [Thread(target=build, args=(number,)) for number in (40, 41, 42)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()


class ModelNew(nn.LayerNorm):
    def forward(self, x):
        raise RuntimeError(f"the answer is {built[41]()}")
"""

BY_AN_OPERATOR = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

load_inline(
    name="registers",
    cpp_sources="""
#include <torch/library.h>
int64_t answer() { return 41; }
TORCH_LIBRARY(of_shared_builds, m) { m.def("answer", &answer); }
""",
    functions=["answer"],
)
answer = torch.ops.of_shared_builds.answer


class ModelNew(nn.LayerNorm):
    def forward(self, x):
        raise RuntimeError(f"the answer is {answer()}")
'''


@pytest.mark.parametrize("text", [IN_THREADS, BY_AN_OPERATOR])
def test_extensions_are_there_however_a_file_loads_them(tmp_path, text):
    """By several threads, or for what they register alone."""
    said, _cached = Cache(tmp_path).judged(text)
    assert "the answer is 41" in said
