"""The `rlx` command, one file a subcommand."""
