"""The run of the gate in pytest: command line, collection, items, and the folder of the run."""
