"""Pages that need no network: one file each, styles and scripts in it."""
