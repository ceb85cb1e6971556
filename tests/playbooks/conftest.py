"""What every test of a playbook needs: a machine that can simulate hosts."""

from __future__ import annotations

import pytest

from tests.needed import need_lab


@pytest.fixture(scope="session")
def lab_is_possible() -> None:
    """Skips where no lab can be started, but never in CI: there it is an error."""
    need_lab()
