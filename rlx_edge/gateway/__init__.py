"""The gateway: serves the page, its runtime and the models (Starlette).

What decides is in plain functions and records (`settings`, `security`, `assets`); `app` wires them
into routes. Nothing here runs a model yet.
"""
