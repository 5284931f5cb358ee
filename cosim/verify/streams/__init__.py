"""Register-command streams as files: their contents, their sources, and when their words were written."""
