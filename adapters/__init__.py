"""The world behind ports: Ray, the database, the clock, the object store, the GPU library; each with a fake."""
