"""What runs on other servers: agents and tools."""
