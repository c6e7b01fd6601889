"""Files of the corpus with what they attack open: what is open must be gone through.

`python -m tests.hostile.opened` judges all files so, and those whose times matter; its table is in results/. Here it is
one for each thing that is open, and what that table does not have as it is.
"""

import re

import pytest

from tests.helpers import ROOT
from tests.hostile import verdicts
from tests.hostile.opened import accepted_in
from tests.hostile.verdicts import ENTRIES

TABLE = "results/cpu/hostile_opened.json"
OPENED = [e for e in ENTRIES if e.opens and not e.needs_quiet and "gpu" not in e.needs and "timing" not in e.needs]
KNOWN = {name for _, name in accepted_in(ROOT / TABLE)}
BUILD = re.compile("cpp_extension|compile|inductor")
# What builds nothing is the cheaper one; a compiler's processes may hold more memory than a worker has on this machine.
ONE_OF_EACH = {
    e.opens.text: e for e in sorted(OPENED, key=lambda e: bool(BUILD.search(e.path.read_text())), reverse=True)
}
KNOWN_BEFORE = f"{TABLE} has its verdict, and another file is judged with the same open"


@pytest.fixture(scope="module")
def opened(tmp_path_factory, whole):
    return verdicts.judge_opened(tmp_path_factory.mktemp("opened"), [e for e in OPENED if whole or _is_judged(e)])


def _is_judged(entry):
    return entry.name not in KNOWN or entry in ONE_OF_EACH.values()


def _parameter(entry):
    return pytest.param(entry, marks=() if _is_judged(entry) else pytest.mark.whole(KNOWN_BEFORE), id=entry.name)


@pytest.mark.parametrize("entry", map(_parameter, OPENED))
def test_with_what_it_attacks_open_it_is_accepted(entry, opened):
    """Otherwise something else refuses it, and nothing is known of what it is here to test."""
    outcome = opened[entry.name]
    assert outcome.verdict == "accepted", f"{entry.opens.text}: {outcome.message}"
