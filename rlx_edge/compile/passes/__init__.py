"""Graph passes: each takes a valid module and leaves a valid module."""
