"""`all_reduce_perf -b SIZE -e SIZE -g DEVICES …` of nccl-tests and rccl-tests: its table and its sums.

Layout of nccl-tests 2.17. Nothing is added up: the bandwidth is what `faults.all_reduce_gb_s` of `host.json` says,
else a plausible one, and `faults.all_reduce_wrong` counts wrong results.
"""

from __future__ import annotations

from .host_state import STANDIN_NOTICE, fault, present_devices, read_device_uses, read_host

USUAL_GB_S = {"nvidia": 474.6, "amd": 361.0}
EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    """Print what the test prints.

    Args:
        arguments: as in `sys.argv`.
    """
    host, words = read_host(), arguments[1:]
    count = int(words[words.index("-g") + 1]) if "-g" in words[:-1] else 1
    if count > len(present_devices(host)) or read_device_uses(host):
        print(
            "Test NCCL failure common.cu:1000 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'"
        )
        return EXIT_FAILED
    speed = fault(host, "all_reduce_gb_s") or USUAL_GB_S.get(host["vendor"], 0.0)
    wrong = fault(host, "all_reduce_wrong") or 0
    print(f"# nThread 1 nGpus {count} minBytes 8589934592 maxBytes 8589934592 ({STANDIN_NOTICE})")
    print("#       size         count      type   redop    root     time   algbw   busbw  #wrong")
    print(
        f"  8589934592    2147483648     float     sum      -1    36200  {speed / 1.75:.2f}  {speed:.2f}  {wrong}"
    )
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {speed:.4f}")
    print("#")
    return EXIT_FAILED if wrong else 0
