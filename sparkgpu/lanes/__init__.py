"""Worker processes, each bound to one device: they are started, followed, and restarted when they hang."""
