"""Whole models and attention on a GPU, beside PyTorch on the same weights and beside the bound."""
