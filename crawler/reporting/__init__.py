"""What a crawl tells: lines of its logs (`crawl_log`), figures (`statistics`), a live line (`progress`), reports (`reports`).

`logs` is the only place that decides where events go and how they look.
"""
