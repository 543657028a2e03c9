"""Where runs are kept: the protocol that every store speaks, and the stores."""
