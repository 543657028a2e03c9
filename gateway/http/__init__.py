"""The HTTP side: the ASGI application, its routes, and the stream that a viewer reads. ASGI is known only here."""
