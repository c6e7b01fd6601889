"""What a change touches, by git, and what the gate says that it passed over."""

import os
import shutil

import pytest

from harness.errors import UsageError
from harness.gate.changes import changed_since
from harness.gate.config import Config
from harness.gate.targets import (
    find_targets,
    in_place_of_shipped,
    moved_measures,
    passed_over,
    touched,
    without_folders_problem,
)
from tests.gate.repositories import PROBLEM, commit, git
from tests.helpers import ROOT


def names(folder, since="HEAD"):
    targets = find_targets([], Config(), folder)
    changed = changed_since(since, folder)
    return [f"{t.submission.name} on {t.problem.stem}" for t in touched(targets, changed, folder / "kernelgate.toml")]


def test_only_what_differs_is_judged(history):
    assert names(history) == []
    (history / "README.md").write_text("words")
    assert names(history) == []
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    assert names(history) == ["mine on tiny"]
    commit(history)
    assert (names(history), names(history, "HEAD~1")) == ([], ["mine on tiny"])


def test_all_that_depends_on_a_changed_problem_is_judged(history):
    (history / "problems/second.py").write_text(PROBLEM + "\n")
    assert names(history) == ["other on second"]
    (history / "problems/tiny.py").write_text(PROBLEM + "\n")
    assert names(history) == ["mine on tiny", "other on tiny", "other on second"]


def test_a_new_file_counts_before_git_knows_it_and_a_removed_one_does_not(history):
    (history / "submissions/tiny/new one.py").write_text("import torch\n")
    (history / "submissions/tiny/mine.py").unlink()
    assert names(history) == ["new one on tiny"]


def test_other_rules_touch_all(history):
    (history / "kernelgate.toml").write_text("max-spills = 0\n")
    assert len(names(history)) == 3


def remarks(folder):
    """Of a gate on what differs from HEAD: the files, and the sentences."""
    configured = folder / "kernelgate.toml"
    changed = changed_since("HEAD", folder)
    targets = touched(find_targets([], Config(), folder), changed, configured)
    said = moved_measures(targets, changed, configured)
    return [(os.path.basename(remark.file), remark.text.partition(" decides ")[2].partition(".")[0]) for remark in said]


def test_a_change_that_moves_its_own_measure_is_told_to_whoever_merges_it(history):
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    assert remarks(history) == []
    (history / "problems/second.py").write_text(PROBLEM + "\n")
    assert remarks(history) == [("second.py", "what is right")]
    (history / "kernelgate.toml").write_text("max-spills = 0\n")
    assert remarks(history) == [("second.py", "what is right"), ("kernelgate.toml", "the rules")]


def test_a_problem_in_place_of_a_shipped_one_is_said(history):
    shutil.copy(ROOT / "problems/rmsnorm.py", history / "problems")
    (history / "submissions/rmsnorm").mkdir()
    (history / "submissions/rmsnorm/mine.py").write_text("import torch\n")
    assert in_place_of_shipped(find_targets([], Config(), history)) == []
    with open(history / "problems/rmsnorm.py", "a") as problem:
        problem.write("ATOL = 1.0\n")
    (remark,) = in_place_of_shipped(find_targets([], Config(), history))
    assert "differs from the rmsnorm that ships" in remark.text


@pytest.mark.parametrize("ignored", ["none", "all"])
def test_a_submission_in_a_submodule_is_judged_when_the_submodule_moves(history, tmp_path, ignored):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "far.py").write_text("import torch\n")
    git(theirs, "init", "-q", "-b", "main")
    commit(theirs)
    git(history, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(theirs), "submissions/second")
    git(history, "config", "-f", ".gitmodules", "submodule.submissions/second.ignore", ignored)
    commit(history)
    assert names(history) == []
    (history / "submissions/second/far.py").write_text("import torch, math\n")
    assert names(history) == ["far on second"]
    commit(history / "submissions/second")
    assert names(history) == ["far on second"]
    git(history, "add", "-f", "submissions/second")
    git(history, "commit", "-q", "-m", "moved")
    assert names(history, "HEAD~1") == ["far on second"]


def test_a_submission_that_is_a_link_is_judged_when_what_it_points_to_changes(history):
    (history / "kernels/tiny").mkdir(parents=True)
    (history / "kernels/tiny/shared.py").write_text("import torch\n")
    (history / "submissions/tiny/link.py").symlink_to("../../kernels/tiny/shared.py")
    commit(history)
    assert names(history) == []
    (history / "kernels/tiny/shared.py").write_text("import torch, math\n")
    assert names(history) == ["link on tiny"]


def test_a_branch_is_compared_from_where_it_parted(history):
    git(history, "checkout", "-q", "-b", "branch")
    (history / "submissions/tiny/mine.py").write_text("import torch\n")
    commit(history)
    git(history, "checkout", "-q", "main")
    (history / "submissions/tiny/other.py").write_text("import torch\n")
    commit(history)
    git(history, "checkout", "-q", "branch")
    assert names(history, "main") == ["mine on tiny"]


@pytest.mark.parametrize("ref", ["no-such-ref", "--output=x", "HEAD:kernelgate.toml"])
def test_a_commit_that_is_not_there_is_said_and_no_checkout_is_blamed(history, ref):
    with pytest.raises(UsageError, match=f"there is no commit or branch '{ref}' in ") as raised:
        changed_since(ref, history)
    assert "shallow" not in str(raised.value)


def test_a_shallow_checkout_is_said_with_what_helps(history, tmp_path):
    commit(history, "--allow-empty")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{history}", "shallow")
    with pytest.raises(UsageError, match=r"no commit or branch 'HEAD~1' in .* shallow checkout, .* fetch-depth: 0"):
        changed_since("HEAD~1", tmp_path / "shallow")


def test_branches_without_a_commit_in_common_are_what_git_says(history):
    git(history, "checkout", "-q", "--orphan", "apart")
    commit(history, "-m", "apart")  # else the same commit, if in the same second
    with pytest.raises(UsageError, match=r"--since: git merge-base in .* says: exit code 1\.$"):
        changed_since("main", history)


def test_listed_problems_leave_out_others_and_a_file_for_none_is_refused(history):
    assert [t.problem.stem for t in find_targets([], Config(problems=("second",)), history)] == ["second"]
    with pytest.raises(UsageError, match="problems lists 'third', and there is no file"):
        find_targets([], Config(problems=("third",)), history)
    (history / "submissions/stray").mkdir()
    (history / "submissions/stray/x.py").write_text("import torch\n")
    with pytest.raises(UsageError, match=r"Which problem is .*x\.py for\?"):
        find_targets([], Config(), history)


def test_what_is_passed_over_is_said(history):
    only = Config(problems=("second",))
    assert passed_over([], Config(), history) == []
    for name in "abcd":
        (history / f"submissions/tiny/{name}.py").write_text("import torch\n")
    one, folder = history / "submissions/tiny/mine.py", history / "submissions"
    one.write_text("ALSO_FOR = ['third']\n")
    assert [remark.line for remark in passed_over([one, folder], only, history)] == [
        f"{one} was passed over: it is for third, tiny, and problems lists second.",
        f"{folder}/tiny/a.py, {folder}/tiny/b.py, {folder}/tiny/c.py and 1 more were passed over: they are for tiny, "
        "and problems lists second.",
    ]


def test_a_folder_that_no_problem_is_called_like_is_said(history):
    (history / "submissions/many").mkdir()
    (history / "submissions/many/x.py").write_text("ALSO_FOR = ['second', 'tiny']\n")
    (remark,) = without_folders_problem(find_targets([], Config(), history), Config())
    assert remark.line == (
        f"{history}/submissions/many/x.py: No problem is named like its folder, 'many'; it is judged on second, tiny "
        "alone, as its ALSO_FOR says."
    )
    chosen = Config(problems=("second",))
    assert without_folders_problem(find_targets([], chosen, history), chosen) == []
