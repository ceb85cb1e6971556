"""Simulated engines: what a rehearsal starts where a real host would start vLLM, SGLang or the Ascend proxy.

The package runs inside a simulated host as ``python3 -I -S <this folder> <program> <arguments>``. It needs
the standard library alone (Python 3.9 or newer), imports nothing else of the project, and must start in a few
dozen milliseconds of processor time: dozens of ranks start together on two cores. That is why it has a small event
loop of its own (``loop.py``; importing asyncio costs more than everything else together), why values that travel are
``NamedTuple`` and not dataclasses, and why costly modules stay out.

A simulator is worth nothing if it accepts what the real engine rejects: arguments, configuration,
environment, ports, devices, weights, handshakes and KV transfers are checked as the pinned release does, with
its own messages and exit codes.

What the package is told, by environment:

    MOE_REHEARSAL_ENGINE           vllm, vllm-ascend, sglang or ascend-proxy: what the image holds
    MOE_REHEARSAL_ENGINE_VERSION   the engine's release (of vLLM, where vllm-ascend is played)
    MOE_REHEARSAL_PLUGIN_VERSION   vllm-ascend's release
    MOE_REHEARSAL_DEVICES          device indices that the container got; unset: all of the host
    MOE_REHEARSAL_LOCKED_MEMORY    bytes that a container may lock, or unlimited; unset: no container
    MOE_REHEARSAL_STATE            folder with host.json and devices/; requests.jsonl is written there
    MOE_REHEARSAL_CATALOGUES       folder with packages/
    host.json: network             rdma (the default) or socket: what NCCL says with NCCL_DEBUG=INFO that it uses
    MOE_REHEARSAL_RANK_DEATH       what others of a group do: stall (as accelerators' collectives, the default), fail
                                   at the next request (as gloo, recorded), or exit; host.json: rank_death
    MOE_REHEARSAL_HCCN_CONF        where Mooncake's /etc/hccn.conf is looked for, in tests
    MOE_REHEARSAL_DEV              where /dev is looked for, in tests

Beside the keys that every stand-in reads, host.json may hold overhead_gib (memory that is neither
weights nor cache, 0 by default) and host_memory_gib (for vLLM 0.17's swap space).

What it does not show: performance, numerical results, ports that the engines draw at random, cache evictions and
leases, TLS, LoRA, pipeline stages as processes of their own. Where an engine only hangs (a NIXL listener that
cannot bind), the simulation says so and leaves with 1.
"""
