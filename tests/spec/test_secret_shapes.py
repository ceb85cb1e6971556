"""A secret that stands where its place belongs is refused by its shape, and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from infra.spec.load import load_stack
from infra.spec.section import looks_like_secret

# Made up; each has the form that its issuer gives out.
SECRETS = (
    "hf_" + "aB3" * 11,
    "hf_" + "q" * 34,
    "hf_Abcd1234",
    "ghp_" + "Z9x" * 12,
    "github_pat_" + "A1b" * 20,
    "glpat-" + "x7Y" * 7,
    "nvapi-" + "k2M" * 20,
    "sk-proj-" + "p8Q" * 14,
    "sk_live_" + "p8Q" * 8,
    "npm_" + "w5E" * 12,
    "AKIA" + "ABCDEFGH01234567",
    "AIza" + "d4F" * 11 + "xy",
    "eyJ" + "h2G" * 8 + "." + "k3L" * 8 + "." + "m4N" * 8,
    "0123456789abcdef" * 2,
    "x9Kd" * 8,
)
NAMES = (
    "HF_TOKEN", "hf_token", "hf_token_of_team_alpha", "HUGGING_FACE_HUB_TOKEN", "A_KEY", "api_key", "KEY1", "sk_key",
    "SK_LIVE_KEY_2", "VLLM_API_KEY", "ghp_token", "MY_COMPANY_PRODUCTION_EDGE_KEYS_2026", "keys/clients.keys",
    "secrets/hf_token.txt", "./edge.key", "npm_config_token", "ms_token", "TOKEN2026",
)  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_a_token_has_the_shape_of_one(secret: str) -> None:
    assert looks_like_secret(secret)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_variable_or_a_file_has_not(name: str) -> None:
    assert not looks_like_secret(name)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "field", ["secrets.api_key.env", "secrets.hf_token.file", "secrets.edge_keys", "edge.keys.env"]
)
def test_a_secret_on_the_command_line_is_refused_and_not_shown(secret: str, field: str) -> None:
    stack = "tests/stacks/vllm-shared-edge.yaml" if field.startswith("edge") else "h200-tp8"
    with pytest.raises(ProblemsFound) as found:
        load_stack(stack, [f"{field}={secret}"])
    assert secret not in str(found.value)


@pytest.mark.parametrize("way", ["env", "file"])
def test_a_secret_in_a_file_is_refused_and_not_shown(tmp_path: Path, way: str) -> None:
    text = Path("stacks/h200-tp8.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{text}\nsecrets: {{api_key: {{{way}: {SECRETS[0]}}}}}\n", encoding="utf-8")
    with pytest.raises(ProblemsFound) as found:
        load_stack(str(path), [])
    assert "has the shape of a secret itself" in str(found.value)
    assert SECRETS[0] not in str(found.value)
