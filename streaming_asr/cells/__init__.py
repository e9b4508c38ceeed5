"""The folders of results: what a cell's folder holds, whether it still holds, its pieces."""
