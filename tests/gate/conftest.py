"""Repositories with something to be judged."""

import pytest

from tests.gate.repositories import PROBLEM, commit, git


@pytest.fixture
def repository(tmp_path):
    for name, text in {"problems/tiny.py": PROBLEM, "submissions/tiny/mine.py": "import torch.cuda\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def history(repository):
    (repository / "submissions/tiny/other.py").write_text("ALSO_FOR = ['second']\n")
    (repository / "problems/second.py").write_text(PROBLEM)
    git(repository, "init", "-q", "-b", "main")
    commit(repository)
    return repository
