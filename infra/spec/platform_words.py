"""The platform that an operator means who calls it by another name."""

from __future__ import annotations

from collections.abc import Mapping

from infra.spec.stack import Platform

_MEANT: Mapping[str, Platform] = {
    "baremetal": "existing-hosts",
    "datacenter": "existing-hosts",
    "host": "existing-hosts",
    "hosts": "existing-hosts",
    "local": "existing-hosts",
    "metal": "existing-hosts",
    "onprem": "existing-hosts",
    "onpremises": "existing-hosts",
    "ownhosts": "existing-hosts",
    "slurm": "existing-hosts",
    "ssh": "existing-hosts",
    "aws": "aws-ec2",
    "ec2": "aws-ec2",
    "eks": "aws-eks",
    "gce": "gcp-gce",
    "gcp": "gcp-gce",
    "google": "gcp-gce",
    "googlecloud": "gcp-gce",
    "k8s": "existing-kubernetes",
    "kubernetes": "existing-kubernetes",
}


def meant_platform(word: str) -> Platform | None:
    """The platform of a word such as `bare-metal`, in any letters, with or without hyphens; None for others."""
    return _MEANT.get("".join(c for c in word.casefold() if c.isalnum()))
