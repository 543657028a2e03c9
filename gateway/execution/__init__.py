"""Running tools: what they see, what they can end in, and who owns a run while it works."""
