"""Other people's recipes: files of foreign formats read into the processes that they would start."""
