"""An emulated `pulumi-resource-aws`: spoken to by the real engine, with resources on disk."""
