"""Runs the package from a folder or a zip file, where it has no parent package."""

import gc
import sys
import types

# what start-up allocates stays; collecting in between costs a tenth of it (``Loop.run`` switches it on)
gc.disable()


def _run() -> None:
    """Make the folder importable as one package and hand over to ``start``."""
    if __package__:
        from .start import main  # noqa: PLC0415 - which way depends on how we were started
    else:
        package = types.ModuleType("simulated_engine")
        package.__path__ = [sys.path[0]]
        sys.modules["simulated_engine"] = package
        from simulated_engine.start import main  # type: ignore[import-not-found,no-redef] # noqa: PLC0415
    main(sys.argv[1:])


if __name__ == "__main__":
    _run()
