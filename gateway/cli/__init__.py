"""The command line: flags become settings, and the process is set up for streams. Process-wide choices live only here."""
