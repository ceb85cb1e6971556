"""`python -m infra.agent < request.json`: the agent run in place, as the Ansible module does."""

import sys

from .conversation import main

sys.exit(main(sys.argv[1:]))
