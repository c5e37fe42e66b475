"""Compilation targets: limits and features as data."""
