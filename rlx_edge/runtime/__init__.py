"""The floor under every executor: buffers, units, command lists, feeds and trace events."""
