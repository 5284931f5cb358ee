"""Every constant of the timing: where it stands, its source, its effect on the totals."""
