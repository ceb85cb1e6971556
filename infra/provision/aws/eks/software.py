"""What a cluster of the stack's own gets before the workload: charts of device plug-ins, drivers and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi_kubernetes.helm import v3 as helm

from infra.catalog.eks import Chart

# Images of drivers are large, and pods wait for nodes.
INSTALL_S = 900


class EksSoftware(pulumi.ComponentResource):
    """A Helm release per chart, one after the other: webhooks and definitions are there before what wants them.

    Args:
        name: the stack's.
        charts: in the order in which they are installed.
        provider: of the cluster's API.
        values: further values by chart.
        cluster: what all of it goes with.
        ready: what must be there before the first release.

    `last` is what the workload waits for.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that releases are made from
        self,
        name: str,
        charts: Sequence[Chart],
        provider: kubernetes.Provider,
        *,
        values: Mapping[str, Mapping[str, object]],
        cluster: pulumi.Resource,
        ready: Sequence[pulumi.Resource],
    ) -> None:
        super().__init__("moe-infra:cluster:EksSoftware", name)
        after = list(ready)
        for chart in charts:
            options = ResourceOptions(
                parent=self, provider=provider, depends_on=after, deleted_with=cluster
            )
            after = [_release(chart, values.get(chart.name, {}), options)]
        self.last: tuple[pulumi.Resource, ...] = tuple(after)
        self.register_outputs({})


def _release(chart: Chart, further: Mapping[str, object], options: ResourceOptions) -> helm.Release:
    repository = {"repo": chart.repository} if chart.repository is not None else None
    return helm.Release(
        chart.name,
        name=chart.name,
        chart=chart.chart,
        version=chart.version,
        repository_opts=repository,
        namespace=chart.namespace,
        create_namespace=True,
        # a null takes a default of the chart away
        allow_null_values=True,
        values={**chart.values, **further},
        timeout=INSTALL_S,
        opts=options,
    )
