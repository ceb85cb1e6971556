#!/usr/bin/python3 -IS
"""What is installed under the name of each program that a stand-in replaces.

It stays this short because a script is compiled at each start; the modules it loads are not.
"""

import os
import sys

sys.path.insert(0, os.environ.get("MOE_REHEARSAL_LIBRARY", "/opt/moe-rehearsal"))

from standins.program_table import run  # type: ignore[import-not-found]  # installed there

sys.exit(run(sys.argv))
