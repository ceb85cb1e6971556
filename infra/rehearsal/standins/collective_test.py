"""`all_reduce_perf -b SIZE -e SIZE -g DEVICES …` of nccl-tests and rccl-tests: its table and its sums.

Layout and options of nccl-tests 2.17 (src/common.cu): a word that it does not take is answered with the usage, and
with 0. Nothing is added up: the bandwidth is what `faults.all_reduce_gb_s` of `host.json` says, else a plausible one,
and `faults.all_reduce_wrong` counts wrong results.
"""

from __future__ import annotations

import os

from .host_state import STANDIN_NOTICE, fault, present_devices, read_device_uses, read_host
from .standin_options import BadOption, read_options

USUAL_GB_S = {"nvidia": 474.6, "amd": 361.0}
EXIT_FAILED = 1
EXIT_BAD_SIZE = 255
NAMES = {
    "nthreads": "t", "ngpus": "g", "minbytes": "b", "maxbytes": "e", "stepbytes": "i", "stepfactor": "f",
    "iters": "n", "agg_iters": "m", "warmup_iters": "w", "parallel_init": "p", "check": "c", "op": "o",
    "datatype": "d", "root": "r", "blocking": "z", "stream_null": "y", "timeout": "T", "cudagraph": "G",
    "report_cputime": "C", "average": "a", "output_file": "F",
}  # fmt: skip
OPTIONS = {f"--{name}": True for name in NAMES} | {f"-{letter}": True for letter in NAMES.values()}
UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10}
USUAL_SIZE = "32M"
WORD_BYTES = 4


def main(arguments: list[str]) -> int:
    """Print what the test prints.

    Args:
        arguments: as in `sys.argv`.
    """
    host = read_host()
    try:
        options = read_options(arguments[1:], OPTIONS)
    except BadOption:
        print(f"invalid option '?'\nUSAGE: {os.path.basename(arguments[0])} ({STANDIN_NOTICE})")
        return 0
    given = {NAMES.get(name.lstrip("-"), name[1:]): value for name, value in options.items()}
    least, most = (_size(given.get(letter, USUAL_SIZE)) for letter in "be")
    if least < 0 or most < least:
        os.write(2, b"invalid sizes for 'minbytes' and 'maxbytes'\n")
        return EXIT_BAD_SIZE
    count = int(given.get("g", "1"))
    if count > len(present_devices(host)) or read_device_uses(host):
        print(
            "Test NCCL failure common.cu:1000 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'"
        )
        return EXIT_FAILED
    speed = fault(host, "all_reduce_gb_s") or USUAL_GB_S.get(host["vendor"], 0.0)
    wrong = fault(host, "all_reduce_wrong") or 0
    print(f"# nThread 1 nGpus {count} minBytes {least} maxBytes {most} ({STANDIN_NOTICE})")
    print("#       size         count      type   redop    root     time   algbw   busbw  #wrong")
    print(
        f"  {most}    {most // WORD_BYTES}     float     sum      -1    36200  "
        f"{speed / 1.75:.2f}  {speed:.2f}  {wrong}"
    )
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {speed:.4f}")
    print("#")
    return EXIT_FAILED if wrong else 0


def _size(text: str) -> int:
    """Return the bytes of `8G`; -1 for what is no size."""
    unit = UNITS.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    return int(digits) * unit if digits.isdigit() else -1
