"""The tool around the checks: it reads files, starts targets, judges them and reports."""
