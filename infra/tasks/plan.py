"""`fab plan`: every process of a stack, for people, as JSON, explained, or as a picture."""

from __future__ import annotations

from pathlib import Path

from infra.catalog.load import Catalog
from infra.inventory.book import name_origins
from infra.plan.document import plan_document
from infra.render.picture import draw_plan
from infra.render.plan_listing import plan_explanation, plan_listing
from infra.tasks.choice import same_choice
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.picture_file import write_picture
from infra.tasks.stack_options import compile_chosen


def run(options: Options, output: Output) -> int:
    """Print the plan. It is not judged: that is `fab check`."""
    compiled = compile_chosen(options, Catalog())
    is_documentation = compiled.book.is_documentation
    picture = options.text("picture")
    if picture is not None:
        write_picture(Path(picture), draw_plan(compiled.plan))
        output.message(f"Drawn: {picture}")
    output.document(plan_document(compiled.plan))
    if options.is_on("explain"):
        if not is_documentation:
            output.data("\n".join(name_origins(compiled.book)) + "\n")
        output.data(plan_explanation(compiled.plan, documentation_addresses=is_documentation))
    else:
        output.data(plan_listing(compiled.plan, documentation_addresses=is_documentation))
    output.next_command(f"fab check {same_choice(options)}")
    return 0
