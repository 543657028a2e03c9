"""The command line: flags become settings, and the process is set up for streams (which no library may do)."""
