"""One module a command of the `quantizer` line; each has add_parser(subparsers) and run(args)."""
