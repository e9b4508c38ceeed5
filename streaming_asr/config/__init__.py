"""The configuration: its schema, composed, settled, and made into objects."""
