"""What runs in a process of its own: one module for each real system, with `load` and `run`.

load(model, options) -> session: builds what can run again; the last sessions are kept.
run(session, feeds) -> arrays: runs it once.
"""
