"""Runs plugins' functions in a separate process: the judge's side, the process's side, and the data between them.

`plugins.load` starts the process and registers a stand-in for each function in the judge; `worker` runs in the process.
"""
