"""Compiler: graph IR to device programs."""
