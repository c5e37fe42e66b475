"""Measurements against peers and limits, side by side in one run; `python -m bench --help`."""
