"""Code generation: kernel IR to target code, one package a target."""
