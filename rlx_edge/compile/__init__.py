"""The compiler: graph passes, lowering, planning and code generation. Standard library only."""
