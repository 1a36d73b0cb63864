"""Topics to files and back."""
