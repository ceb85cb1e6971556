"""What hosts run and cannot write is compiled before they start."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.rehearsal.lent_programs import (
    SWITCH,
    compile_lent_programs,
    compiled_file,
    router_module,
)

CATALOG = Catalog()


@pytest.mark.parametrize(
    ("router", "module"),
    [
        ("vllm-router", "vllm_router.launch_router"),
        ("sglang-router", "sglang_router.launch_router"),
        ("ascend-proxy", None),  # it comes with its engine's image
    ],
)
def test_a_router_begins_with_a_module_of_its_wheel(router: str, module: str | None) -> None:
    assert router_module(CATALOG.router(router)) == module


@pytest.mark.slow  # compiles all of a router's wheel
@pytest.mark.parametrize(
    ("stack", "router"), [("vllm-shared-1p1d", "vllm_router"), ("sglang-replicas", "sglang_router")]
)
def test_the_router_of_a_plan_is_compiled_whatever_the_shell_says(
    stack: str, router: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    place = compiled_file(f"{router}.launch_router")
    assert place is not None
    place.unlink(missing_ok=True)
    compile_lent_programs(compile_file(f"tests/stacks/{stack}.yaml", catalog=CATALOG).plan, CATALOG)
    assert place.exists()
