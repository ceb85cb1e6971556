"""The check `group-collective`: groups that do not add up, wrongly, over sockets, or slower than they could."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.engines.transport_signs import Library
from infra.engines.transports import read_transports
from infra.inventory.collective_baseline import RecordedCollective
from infra.launch.preflight.collectives import LEAST_SHARE
from infra.launch.preflight.group_collectives.blame import who_broke_off, who_did_not_join
from infra.launch.preflight.group_collectives.layout import GroupLayout, spanning_groups
from infra.launch.preflight.group_collectives.starting import backend_of, runtime_item
from infra.launch.preflight.group_collectives.told import ToldHost, bus_gb_s, parse_told, slowest
from infra.launch.preflight.observed import Told
from infra.launch.preflight.scene import GroupRun, Scene, Trouble
from infra.launch.transport_verdicts import Verdict, collective_of, judge_collective

CHECK = "group-collective"
# Over a network that others use, too, runs differ by more than over the links of one host.
BASELINE_SHARE = 0.8
NO_TORCH = "ModuleNotFoundError"
REFUSED_CONTAINER = 125  # docker-run(1) and podman-run(1), "Exit Status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A group that has added up rightly.

    Args:
        gb_s: bandwidth of the bus, see `bus_gb_s`.
        said: all that is known of the run, in words.
    """

    layout: GroupLayout
    gb_s: float
    said: str


def hosts_of_groups(scene: Scene) -> tuple[str, ...]:
    """Hosts of groups that span several."""
    named = {host for layout in spanning_groups(scene.plan) for host in layout.hosts}
    return tuple(host for host in scene.engine_hosts if host in named)


def find_group_faults(scene: Scene) -> Iterator[Trouble]:
    """Hosts that keep a group from adding up, and groups that add up wrongly, over sockets or slowly."""
    measured: list[Measured] = []
    for layout in spanning_groups(scene.plan):
        run = scene.group_runs.get(layout.group)
        if run is None or run.why_not:
            yield from _not_run(layout, run)
            continue
        troubles = list(_faults(scene, layout, run))
        yield from troubles
        if not any(one.severity == "block" for one in troubles) and (
            one := _measure(scene, layout, run)
        ):
            measured.append(one)
    for one in measured:
        slow = [*_behind_peers(scene, one, measured), *_behind_baseline(scene, one)]
        yield from slow or [_note(one.layout.hosts[0], one.said)]


def sound_collectives(scene: Scene) -> tuple[RecordedCollective, ...]:
    """What groups reached that add up as they should: worth being the baseline of those that have none."""
    found = []
    for layout in spanning_groups(scene.plan):
        run = scene.group_runs.get(layout.group)
        if run is None or run.why_not or list(_faults(scene, layout, run)):
            continue
        if (one := _measure(scene, layout, run)) is not None:
            found.append(_as_record(scene, one))
    return tuple(found)


def _faults(scene: Scene, layout: GroupLayout, run: GroupRun) -> Iterator[Trouble]:
    """What is wrong with a run, its speed apart."""
    told = {host: parse_told(one.stdout) for host, one in run.told.items()}
    heard = {host: one for host, one in told.items() if one is not None}
    if len(heard) < len(told):
        silent = {host: run.told[host] for host, one in told.items() if one is None}
        yield from _unheard(scene, silent)
        for host in heard:
            yield _note(host, f"not run: {', '.join(silent)} did not begin")
        return
    without = [host for host, one in heard.items() if _has_no_torch(one)]
    if without:
        for host in without:
            yield _note(host, f"not run: its runtime has no torch ({heard[host].ranks[0].error})")
        return
    again = f"`fab preflight --stack {scene.plan.stack}`"
    if blamed := who_did_not_join(layout, heard) or who_broke_off(layout, heard):
        for one in blamed:
            said = f"group {layout.group} does not add up: {one.said}"
            fix = f"See {one.host}: its devices, interface and firewall; then {again}"
            yield Trouble(host=one.host, severity="block", observed=said, fix=fix)
        return
    for rank in (rank for host in heard.values() for rank in host.ranks if rank.wrong):
        host = layout.member_of(rank.rank).host
        said = f"group {layout.group} adds up wrongly: {layout.place(rank.rank)} has {rank.wrong} wrong sums"
        fix = (
            f"Test that device alone (dcgmi diag -r 3, the vendor's acceptance test); then {again}"
        )
        yield Trouble(host=host, severity="block", observed=said, fix=fix)
    yield from _wrong_transports(scene, layout, heard)


def _unheard(scene: Scene, silent: Mapping[str, Told]) -> Iterator[Trouble]:
    """Hosts where the ranks' own parent did not come to a word: it was never begun, or hangs."""
    for host, told in silent.items():
        if told.hung:
            said = f"nothing was heard of its ranks within {told.seconds:.0f} s: its runtime hangs"
        elif told.exit_code == REFUSED_CONTAINER and scene.plan.runtime != "native":
            lines = (line for line in told.stderr.splitlines() if "rror" in line)
            words = next(lines, told.last_words)
            said = f"{scene.plan.runtime} refuses the engine's container: {words}"
        else:
            yield _note(host, f"not run: {told.last_words}")
            continue
        look = (
            "journalctl -b -p err -n 50"
            if scene.plan.runtime == "native"
            else f"{scene.plan.runtime} info"
        )
        fix = f"ssh {host} sudo {look}"
        yield Trouble(host=host, severity="block", observed=said, fix=fix)


def _wrong_transports(
    scene: Scene, layout: GroupLayout, told: Mapping[str, ToldHost]
) -> Iterator[Trouble]:
    for host in layout.hosts:
        verdict = _transport(scene, layout, host, told[host])
        if verdict is None or verdict.ok is not False:
            continue
        declared = scene.rdma_devices(host)
        _, over_nvlink = _wanted(scene, layout, host)
        yield Trouble(
            host=host,
            severity="block" if declared or over_nvlink else "warn",
            observed=f"group {layout.group}: {verdict.detail}",
            wanted=f"by {', '.join(declared)}" if declared else "by the network of the devices",
            fix=f"ssh {host} ibv_devinfo; see NCCL_IB_HCA, NCCL_IB_GID_INDEX and the image's network plugin.",
        )


def _transport(scene: Scene, layout: GroupLayout, host: str, told: ToldHost) -> Verdict | None:
    """What the host's library said that it goes over; None for one that says nothing."""
    if backend_of(scene, layout).library is None:
        return None
    library, over_nvlink = _wanted(scene, layout, host)
    return judge_collective(read_transports(told.lines), library, over_nvlink=over_nvlink)


def _wanted(scene: Scene, layout: GroupLayout, host: str) -> tuple[Library, bool]:
    process = next(one.process for one in layout.members if one.host == host)
    return collective_of(scene.plan, scene.catalog, process)


def _measure(scene: Scene, layout: GroupLayout, run: GroupRun) -> Measured | None:
    """What a run measured; None where it did not come to the end."""
    told = {host: one for host, t in run.told.items() if (one := parse_told(t.stdout)) is not None}
    ranks = [rank for host in told.values() for rank in host.ranks]
    if len(ranks) < layout.num_ranks or not all(rank.has("done") for rank in ranks):
        return None
    last = slowest(ranks)
    backend = backend_of(scene, layout)
    gb_s = bus_gb_s(backend.num_bytes, last.seconds or 0.0, layout.num_ranks)
    first = told[layout.hosts[0]]
    verdict = _transport(scene, layout, layout.hosts[0], first)
    by = f", over {verdict.detail}" if verdict is not None and verdict.ok else ""
    where = f"{layout.num_ranks} devices on {len(layout.hosts)} hosts"
    what = f"{backend.name}, torch {first.torch}"
    said = f"group {layout.group} adds up {spelt(gb_s)} over {where} ({what}{by}); slowest is {layout.place(last.rank)}"
    return Measured(layout=layout, gb_s=gb_s, said=said)


def _behind_peers(scene: Scene, one: Measured, measured: Sequence[Measured]) -> Iterator[Trouble]:
    """A group beside those of as many devices of the same kind on as many hosts."""
    peers = sorted(other.gb_s for other in measured if _shape(scene, other) == _shape(scene, one))
    middle = peers[len(peers) // 2]
    if one.gb_s < middle * LEAST_SHARE:
        wanted = f"about {spelt(middle)}, as groups like it reach"
        yield _slow(
            one, wanted, "See links and rails of its hosts: `fab preflight`'s other findings."
        )


def _behind_baseline(scene: Scene, one: Measured) -> Iterator[Trouble]:
    """A group beside what the same devices reached when they were first measured."""
    now = _as_record(scene, one)
    before = next((record for record in scene.baselines if record.is_of(now)), None)
    if before is not None and one.gb_s < before.bus_gb_s * BASELINE_SHARE:
        wanted = f"{spelt(before.bus_gb_s)} or little less, the baseline of these hosts"
        changed = f" (with {before.runtime})" if before.runtime != now.runtime else ""
        fix = (
            "See what has changed: links, rails, switches, other traffic. Where slower is right now, "
            "remove the group from `collectives` in the inventory's .facts.yml: the next run is recorded."
        )
        yield _slow(one, wanted + changed, fix)


def _slow(one: Measured, wanted: str, fix: str) -> Trouble:
    host = one.layout.hosts[0]
    return Trouble(host=host, severity="warn", observed=one.said, wanted=wanted, fix=fix)


def _shape(scene: Scene, one: Measured) -> tuple[str, int, int]:
    layout = one.layout
    return scene.plan.host(layout.hosts[0]).accelerator, len(layout.hosts), layout.num_ranks


def _as_record(scene: Scene, one: Measured) -> RecordedCollective:
    layout = one.layout
    return RecordedCollective(
        group=layout.group,
        addresses=tuple(scene.plan.host(host).address for host in layout.hosts),
        num_ranks=layout.num_ranks,
        backend=backend_of(scene, layout).name,
        bus_gb_s=round(one.gb_s, 3),
        runtime=runtime_item(scene, layout).partition(":")[2],
    )


def spelt(gb_s: float) -> str:
    """A bandwidth with three digits that count."""
    return f"{gb_s:.3g} GB/s" if gb_s < 1000 else f"{gb_s:.0f} GB/s"  # noqa: PLR2004 - no exponent


def _has_no_torch(told: ToldHost) -> bool:
    return any((rank.error or "").startswith(NO_TORCH) for rank in told.ranks)


def _not_run(layout: GroupLayout, run: GroupRun | None) -> Iterator[Trouble]:
    """A note, and nothing against the hosts."""
    why, first = (run.why_not, run.first) if run is not None else ("it was not asked", "")
    for host in layout.hosts:
        yield Trouble(host=host, severity="pass", observed=f"not run: {why}", fix=first)


def _note(host: str, said: str) -> Trouble:
    return Trouble(host=host, severity="pass", observed=said, fix="")
