"""Files of the corpus whose verdict follows from times: judged as test_hostile judges the others, but alone."""

import pytest

from tests.hostile import verdicts

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def judged(tmp_path_factory, whole):
    return verdicts.judge(tmp_path_factory.mktemp("tmp"), ["cpu"], quiet=True, whole=whole)


@pytest.mark.parametrize(("entry", "device"), verdicts.judged_on("cpu", quiet=True))
def test_verdict(entry, device, judged):
    judged.check_verdict(entry, device)


def test_nothing_is_left_behind(judged):
    judged.check_nothing_is_left()
