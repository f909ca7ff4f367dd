"""One module per subcommand of `quantizer`; each has add_parser(subparsers) and run(args)."""
