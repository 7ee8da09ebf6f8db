"""URLs out of network traffic (`urls.py`): frames → segments (`frames.py`) → flows → requests (`requests.py`)."""
