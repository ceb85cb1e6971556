"""What `pulumi up --stack NAME` runs."""

from infra.provision.program import run_program

run_program()
