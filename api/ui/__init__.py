"""The pages: rendered on the server, no asset from elsewhere."""
