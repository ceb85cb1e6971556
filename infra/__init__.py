"""One file declares a deployment; everything else is derived from it."""
