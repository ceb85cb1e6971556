"""The templates that host agents give to `--format`."""

from __future__ import annotations

from typing import Any

import pytest

from infra.rehearsal.standins.go_template import TemplateError, render_template

DOCUMENT: dict[str, Any] = {
    "RepoDigests": ["vllm/vllm-openai@sha256:1a"],
    "Config": {"Entrypoint": ["vllm", "serve"], "Labels": {"a": "1"}, "Cmd": None},
    "State": {"Running": True, "ExitCode": 0},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{.State.Running}} {{.State.ExitCode}}", "true 0"),
        ("{{json .Config.Entrypoint}}", '["vllm","serve"]'),
        ("{{index .RepoDigests 0}}", "vllm/vllm-openai@sha256:1a"),
        ('{{index .Config.Labels "a"}}', "1"),
        ("{{range .Config.Entrypoint}}<{{.}}>{{end}}", "<vllm><serve>"),
        ('{{join .Config.Entrypoint ","}}', "vllm,serve"),
        ("{{if .State.Running}}up{{else}}down{{end}}!", "up!"),
        ("{{if .State.ExitCode}}bad{{else}}good{{end}}", "good"),
        ("{{.Config.Cmd | json}}", "null"),
        ("{{len .RepoDigests}}", "1"),
        ("{{.Config.Entrypoint}}", "[vllm serve]"),
    ],
)
def test_a_template_is_filled_as_go_does(template: str, text: str) -> None:
    assert render_template(template, DOCUMENT) == text


@pytest.mark.parametrize(
    "template", ["{{.Foo}}", "{{", "{{foo .State}}", "{{index .RepoDigests 3}}"]
)
def test_what_go_refuses_is_refused(template: str) -> None:
    with pytest.raises(TemplateError):
        render_template(template, DOCUMENT)
