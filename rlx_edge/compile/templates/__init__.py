"""Hand-designed kernels for contractions."""
