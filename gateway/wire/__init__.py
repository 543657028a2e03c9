"""What things look like on the wire: events, inputs, JSON, SSE. Values in, bytes out; nothing here waits."""
