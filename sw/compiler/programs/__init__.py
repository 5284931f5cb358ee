"""Full register programs of the layers, shaped like those of the vendor and Mesa (HARDWARE 14)."""
