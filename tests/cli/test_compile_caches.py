"""What engines compile on real hosts: found by the next start, handed to another host, removed when asked."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.watched_group import CONFIG, HOSTS, STACK, Site, have_serve, kept_site

# Two hosts are brought up, restarted and taken down.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

FOLDER = f"/var/cache/moe-infra/{STACK}"
COMPILED, FOUND = "Compiling a graph for compile range", "Directly load the compiled graph(s)"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with kept_site() as found:
        have_serve(found)
        yield found


def said(site: Site, host: str) -> list[str]:
    """What the engine of a host has said of its graphs, the oldest first."""
    words = f"journalctl -u moe-{STACK}-engine@0 -o cat"
    lines = site.sh(host, words).splitlines()
    return [text for line in lines for text in (COMPILED, FOUND) if text in line]


def files(site: Site, host: str) -> list[str]:
    return sorted(site.sh(host, f"cd {FOLDER}/compile && find . -type f").splitlines())


def test_they_outlive_containers_travel_and_go(site: Site) -> None:
    assert said(site, HOSTS[1]) == [COMPILED]
    assert site.fab("restart")[0] == 0
    assert said(site, HOSTS[1]) == [COMPILED, FOUND]

    kept = files(site, HOSTS[0])
    site.sh(HOSTS[1], f"rm -r {FOLDER}")
    code, out, err = site.fab("stage-weights", "--caches", "--json")
    assert code == 0, err
    rows = {row["host"]: (row["state"], row["why"]) for row in json.loads(out)["caches"]}
    assert rows == {HOSTS[0]: ("held", "it compiled it"), HOSTS[1]: ("staged", f"from {HOSTS[0]}")}
    assert files(site, HOSTS[1]) == kept
    for host in HOSTS:
        assert site.sh(host, f"ls {FOLDER}").split() == ["compile"]  # no archive is left

    for host in HOSTS:  # else somebody has changed it since
        site.lab.write_file(host, CONFIG, site.installed[host])
    code, _, err = site.fab("down")
    assert code == 0, err
    assert files(site, HOSTS[0]) == kept
    code, _, err = site.fab("down", "--purge")
    assert code == 0, err
    assert "that engines had compiled removed from 2 hosts" in err
    for host in HOSTS:
        assert site.sh(host, "ls /var/cache/moe-infra") == ""
