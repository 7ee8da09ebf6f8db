"""Output of a crawl: on the terminal (`progress`, `summary`), in its logs (`progress_log`, `troubles`) and in its reports."""
