"""Functions of others in a process of their own: the judge's side, the process's side, and what crosses between them.

`plugins.load` starts the process and registers, in the judge, a stand-in for each function; `worker` is what runs there.
"""
