"""`python -m quantizer.runtime.isolation`: the process of plugins, which the judge starts."""

from quantizer.runtime.engines.inside import pipes

if __name__ == "__main__":
    ends = pipes()  # before anything else is imported, which may print
    from quantizer.runtime.isolation.worker import serve

    serve(*ends)
