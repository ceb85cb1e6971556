"""One host of a rendered folder, for other tools than `fab`."""
