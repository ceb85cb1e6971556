"""Simulated engines: what a rehearsal starts where a real host would start vLLM, SGLang or the Ascend proxy.

The package runs inside a simulated host as ``python3 -I -S <this folder> <program> <arguments>``. It needs
the standard library alone (Python 3.9 or newer), imports nothing else of the project, and must start in a few
dozen milliseconds of processor time: dozens of ranks start together on two cores. That is why it has a small event
loop of its own (``loop.py``; importing asyncio costs more than everything else together), why values that travel are
``NamedTuple`` and not dataclasses, and why costly modules stay out.

A simulator is worth nothing if it accepts what the real engine rejects: arguments, configuration,
environment, ports, devices, weights, handshakes and KV transfers are checked as the pinned release does, with
its own messages and exit codes.
"""
