"""Worker processes bound to one device each: started, followed to their end, started again when they hang."""
