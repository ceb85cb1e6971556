"""The agent: brings one host to a state, proves it, takes it back.

It is standard library and Python 3.6 grammar, imports nothing of ours, and is carried to a host as
source text (`bundle`). One JSON request in, one JSON report out; it leaves with 0 whenever a report
was written, and a failed operation is the report `{"error": {"what", "fix"}}`.

    {"schema_version": 1, "operation": …, …}            the report
    state      mode check|apply|rollback|remove, stack,  {"items": [{id, group, kind, state, before, wanted,
               release, items, groups, diff, secrets,      after, why, needs, diff}], "daemon_reloaded",
               operator, allow, recorded_kinds,            "forgotten_releases" where any were}
               withdraws (the items are all of the
               stack's tuning: what nobody wants any
               more is taken back)
    units      action start|stop|restart|status|         {"units": [{unit, load_state, active_state, sub_state,
               enable|disable, units, beside,              result, exec_main_status, main_pid, n_restarts, job,
               timeout_s, log_lines, stack, awaits,        since, log_tail}], "message": systemctl's words or null},
               await_s                                     and what `groups` reports of that stack, once those that
                                                           it awaits have met
    probe      probes [{id, steps}], parallel            {"probes": [{id, steps: [{status, body, elapsed_s, error}]}]}
    listening  ports                                     {"listening": [{port, address, inode, pid, command}]}
    read       paths                                     {"files": {path: text or null}}
    identity                                             {"architecture", "cpu_implementer", "cpu_part", "cpu_vendor",
                                                           "is_virtual", "pci_devices", "device_files", "drivers"}
    status     record, paths by kind                     the report of `units`, {"record": text or null, "answers":
                                                           {process: HTTP status or null}}
    logs       record, process, role, lines, since,      {"processes": [{id, role}]} behind `journal.operation`'s lines
               after, grep, follow
    facts      commands [{id, argv, timeout_s}],         {"commands": {id: {exit_code, stdout, stderr, seconds}},
               files, globs, disks, devices,              "files": {path: text}, "paths", "disks", "holders",
               writable, stuck                            "writable": {path: {at, error, code}}, "stuck", "clock"}
    reach      name, token, address, limit_s,            {"listen": [{port, error}], "dials": [{to, port, ok, error,
               listen [{port, callers}],                  path_mtu, whole, ahead_s, error_s}]}
               dial [{to, address, port, speaks, loads}]
    groups     action arm|hold|disarm|forget|leave-out|    {"watch": {active, enabled, key: a mark of it}, "groups":
               restart|status, stack, groups, operator,    [{group, leads, epoch, phase, restarts, attempts, why,
               epochs, router, awaits, await_s, key (of    own, …}], "router": {process, why} of its latest end,
               `arm`, see `group.channel`)                 or {}}
    live       processes [{id, unit, names, libraries}],  {"processes": [{id, pid, env, limits, libraries,
               signs, image                                is_silent, image, lines, changes, stopped}], "ceiling",
                                                           "image_ids"}
    evidence   record, collect_s                           {"processes", "left_out"} behind `processes.evidence`'s tar
    lease                                                {"lease": whether one came with the request}
    prepare    operations, parts                         nothing: what requests of those operations need is loaded
    receive    action look|write|publish|discard,        {"is_whole", "num_bytes", "free_bytes"}; the piece to `write`
               target, name, size_bytes, sha256, offset    is behind the request, see `staging.receiving`
    staging    action look|list|start|run|end, …         see `staging.operation`: weights, by a unit of their own

Any request but a stream may carry others along (`also`: a list of requests). They are answered after it, one by one;
their reports stand in its report, `also` too: so what is known of a host before a start costs one execution.

A request for which modules were not carried is answered by `lacks`, their names, beside an error: the same request with
them under `modules` is answered as if they had been there. Nothing has been changed then.

Any request may bring a lease (`{"stack", "token", …}`, see `lease`): it is taken or renewed before
the operation, and given back after it when it says `release`. Held by somebody else, nothing is done
and the report is `{"error": {"what", "fix", "lease": {operator, command, since, …}}}`.

Every absolute path is taken below `MOE_INFRA_ROOT` when that is set, so that tests need no root.
"""
