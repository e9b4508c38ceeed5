"""Streams as they come: many speakers, several methods, a microphone, a Python program."""
