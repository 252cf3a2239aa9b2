"""Make a failing scenario smaller while it still fails."""
