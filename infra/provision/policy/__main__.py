"""What the Pulumi command line runs for `--policy-pack infra/provision/policy`."""

from infra.provision.policy.pack import offer_pack

offer_pack()
