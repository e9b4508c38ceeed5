"""Compares methods of streaming speech recognition on equal terms."""

__version__ = "0.1.0"
