"""Files of the corpus with what they attack open: what is open must be gone through.

Those whose times matter are judged so by `python -m tests.hostile.opened`.
"""

import pytest

from tests.hostile import verdicts
from tests.hostile.verdicts import ENTRIES

OPENED = [e for e in ENTRIES if e.opens and not e.needs_quiet and "gpu" not in e.needs and "timing" not in e.needs]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return verdicts.judge_opened(tmp_path_factory.mktemp("opened"), OPENED)


@pytest.mark.parametrize("entry", OPENED, ids=lambda entry: entry.name)
def test_with_what_it_attacks_open_it_is_accepted(entry, opened):
    """Otherwise something else refuses it, and nothing is known of what it is here to test."""
    outcome = opened[entry.name]
    assert outcome.verdict == "accepted", f"{entry.opens.text}: {outcome.message}"
