"""What no cloud resource may be, whichever program declares it: the pack of `pulumi up --policy-pack`."""
