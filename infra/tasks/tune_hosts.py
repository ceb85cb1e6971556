"""`fab tune-hosts`: bring hosts to the tuning profile, report drift, or take it back."""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.load import Catalog
from infra.errors import Differs, HostsFailed, StackError
from infra.launch.deployment import Limits
from infra.launch.host_tuning import Rows, TuningMode, count_of, tune, tuning_document
from infra.tasks.options import Options
from infra.tasks.output import Output, Tone, table
from infra.tasks.reached_hosts import host_states, open_fleet
from infra.tasks.stack_options import compile_for_hosts, same_choice

STATES = ("ok", "changed", "not_applicable", "blocked", "failed")
_TONES: Mapping[str, Tone] = {"changed": "warn", "blocked": "warn", "failed": "bad"}


def run(options: Options, output: Output) -> int:
    """Tune, check or take back; 4 when an item failed, 6 when a check finds a difference."""
    mode = _mode(options)
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    states = host_states(compiled, catalog)
    with_diff = options.is_on("diff")
    with open_fleet(options, compiled.book.hosts) as fleet:
        rows = tune(fleet, states, mode, with_diff=with_diff, timeout_s=Limits().ask_s)
    output.document(tuning_document(compiled.plan.stack, rows))
    _show(rows, mode, output, with_diff=with_diff)
    again = same_choice(options)
    if count_of(rows, "failed"):
        output.next_command(f"fab tune-hosts {again} --check --diff")
        return HostsFailed.exit_code
    if mode == "check" and count_of(rows, "changed"):
        output.next_command(f"fab tune-hosts {again}")
        return Differs.exit_code
    output.next_command(f"fab up {again}" if mode != "rollback" else f"fab tune-hosts {again}")
    return 0


def _mode(options: Options) -> TuningMode:
    if options.is_on("rollback"):
        if options.is_on("check"):
            what = "--check and --rollback were given together."
            raise StackError("command line", what, "Give one of them.")
        return "rollback"
    return "check" if options.is_on("check") else "apply"


def _show(rows: Rows, mode: TuningMode, output: Output, *, with_diff: bool) -> None:
    """One row per item that is not simply as declared, hosts that agree together; then the sums."""
    alike: dict[tuple[str, ...], list[str]] = {}
    diffs: dict[str, list[str]] = {}
    for host, items in rows.items():
        for row in items:
            if row["state"] in {"changed", "blocked", "failed"}:
                values = f"{row['before']} → {row['after'] if mode != 'check' else row['wanted']}"
                key = (str(row["id"]), str(row["state"]), values, str(row["why"]))
                alike.setdefault(key, []).append(host)
            if with_diff and row.get("diff"):
                diffs.setdefault(str(row["diff"]), []).append(host)
    if alike:
        shown = [(", ".join(hosts), *key) for key, hosts in alike.items()]
        text = table([("hosts", "item", "state", "value", "why"), *shown]).splitlines()
        output.data(text[0])
        for line, (_, _, state, _, _) in zip(text[1:], shown, strict=True):
            output.data(output.toned(line, _TONES[state]))
    for diff, hosts in diffs.items():
        output.data(f"--- {', '.join(hosts)}\n{diff}")
    words = "would change" if mode == "check" else "changed"
    sums = [
        f"{count_of(rows, s)} {words if s == 'changed' else s.replace('_', ' ')}" for s in STATES
    ]
    output.data(f"{len(rows)} hosts: {', '.join(sums)}.")
