"""The processors that a URL passes while a worker holds it, and the disposition that ends its visit."""
