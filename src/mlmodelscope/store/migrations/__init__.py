"""Migrations: each file of `versions` takes the database from the schema number before it to its own."""
