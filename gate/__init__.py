"""Everything around the checks: files, targets, verdicts, reports and the command line."""
