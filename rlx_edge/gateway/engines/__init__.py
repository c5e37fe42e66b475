"""Engines: what runs shards for the gateway. ``engine.py`` is the interface, one file an engine."""
