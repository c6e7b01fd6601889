"""Every test shares the machine with those of other processes, unless it asks to be alone."""

import pytest

from tests import machine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    with machine.shared():
        return (yield)
