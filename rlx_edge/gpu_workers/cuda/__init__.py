"""CUDA through CuPy: devices, compilation by NVRTC, the unit that runs a program.

Importing this package loads neither CuPy nor a driver; the first use of a device does.
"""
