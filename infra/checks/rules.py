"""Every rule by its id, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks.capacity_rules import CAPACITY_RULES
from infra.checks.layout_rules import LAYOUT_RULES
from infra.checks.release_rules import RELEASE_RULES
from infra.checks.transfer_rules import TRANSFER_RULES
from infra.checks.view import Rule

RULES: Mapping[str, Rule] = {**RELEASE_RULES, **LAYOUT_RULES, **TRANSFER_RULES, **CAPACITY_RULES}
