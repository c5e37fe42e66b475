"""What each target offers for an operation: templates with their requirements."""
