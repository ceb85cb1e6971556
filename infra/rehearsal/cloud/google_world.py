"""What the emulated Google project offers: where machine types run, public images, the proxy's blocks.

Zones of A4X, A4 and A3 Ultra: Google, "GPU regions and zones"; which zones a project really sees is its own. Images:
cluster-toolkit@104708037. Read 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Mapping

PROJECT = "rehearsal-project"
# Machine type → zones that offer it, a few of them.
OFFERED_IN: Mapping[str, tuple[str, ...]] = {
    "a4x-highgpu-4g": ("us-central1-a", "us-east1-d"),
    "a4-highgpu-8g": ("us-central1-b", "us-east1-b"),
    "a3-ultragpu-8g": ("europe-west1-b", "us-central1-b", "us-east4-b"),
}
IMAGE_PROJECT = "ubuntu-os-accelerator-images"
# Family → architecture; the newest image of a family carries a date of the emulation's own.
FAMILIES: Mapping[str, str] = {
    "ubuntu-accelerator-2404-arm64-with-nvidia-580": "ARM64",
    "ubuntu-accelerator-2404-amd64-with-nvidia-580": "X86_64",
}
IMAGE_DATE = "v20260101"
# Of documentation: nobody dials through this cloud.
PROXY_BLOCKS = ("198.51.100.0/24",)


def image_link(project: str, name: str) -> str:
    """The self link of an image."""
    return f"https://www.googleapis.com/compute/v1/projects/{project}/global/images/{name}"


def zone_that_offers(machine_type: str) -> str:
    """The first zone of a machine type; any where none is known (the program then says why not)."""
    return next(iter(OFFERED_IN.get(machine_type, ())), "us-central1-a")
