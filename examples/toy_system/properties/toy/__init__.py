"""What must hold of the toy scheduler, and the runs that are likely to break it."""
