"""Plan → text: listings, pictures, units, scripts, and what each host must hold."""
