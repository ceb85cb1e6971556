"""Quotas of the account on machines bought on demand, asked before the first of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pulumi
from pulumi_aws import servicequotas

from infra.errors import Problem
from infra.provision.asking import Asking
from infra.provision.aws.account import Account, Demand
from infra.provision.config_problems import REGION, account_problem

_SERVICE = "ec2"


def quota_problems(account: Account, demand: Demand) -> Iterator[Problem]:
    """Quotas that cannot hold the stack's machines, even if nothing else of the account counts against them.

    What else runs on demand is not counted: the launch then tells. So it does where a quota was not told.
    """
    asking = Asking(demand.stack)
    for code, num_vcpus in demand.quotas.items():
        problem = account_problem(REGION, "", account.region, demand.stack)
        fix = (
            f"Type: aws service-quotas request-service-quota-increase --service-code {_SERVICE} --quota-code {code} "
            f"--desired-value {num_vcpus} --region {account.region}"
        )
        found = asking.ask_of(
            replace(problem, fix=fix),
            f"quota {code} in {account.region}",
            partial(servicequotas.get_service_quota, service_code=_SERVICE, quota_code=code),
        )
        if found is not None and found.value < num_vcpus:
            what = (
                f"{found.quota_name}, a quota on vCPUs, is {found.value:g} in {account.region}; "
                f"the stack's machines have {num_vcpus}."
            )
            yield replace(problem, what=what, fix=fix)
    for unasked in asking.problems:
        pulumi.log.warn(f"{unasked.field}: {unasked.what}")
