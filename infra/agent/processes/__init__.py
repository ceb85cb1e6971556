"""The deployment's units and processes on this host: started, asked, watched, and their evidence kept."""
