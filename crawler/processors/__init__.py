"""The steps a URL passes while a worker holds it: fetch, extract."""
