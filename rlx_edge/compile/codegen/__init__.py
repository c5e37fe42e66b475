"""Code generators, one package a device."""
