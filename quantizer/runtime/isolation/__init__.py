"""Runs plugins' functions in a separate process: the judge's side, the process's side, and the data between them.

`plugins.load` starts the process and registers, in the judge, a stand-in for each function; `worker` is what runs
there.
"""
