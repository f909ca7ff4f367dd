"""The subcommands of `quantizer`, one module each, with add_parser(subparsers) and run(args)."""
