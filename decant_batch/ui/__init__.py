"""What people see: the command line, progress, reports, and the demo share."""
