"""Every rule by its id, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks.tables.capacity import CAPACITY_RULES
from infra.checks.tables.layout import LAYOUT_RULES
from infra.checks.tables.operation import OPERATION_RULES
from infra.checks.tables.release import RELEASE_RULES
from infra.checks.tables.transfer import TRANSFER_RULES
from infra.checks.view import Rule

RULES: Mapping[str, Rule] = {
    **RELEASE_RULES,
    **LAYOUT_RULES,
    **TRANSFER_RULES,
    **CAPACITY_RULES,
    **OPERATION_RULES,
}
