"""Many files. Knows nothing of TIFF bytes."""
