"""Starts servers, drives them with the C client, and compares what came of it."""
