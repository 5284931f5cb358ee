"""Sessions on the golden model, word by word."""
