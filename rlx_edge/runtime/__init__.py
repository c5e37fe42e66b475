"""The floor shared by all executors: buffers, units and the command-list executor without I/O."""
