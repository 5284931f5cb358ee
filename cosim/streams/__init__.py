"""Register-command streams as files: what they hold, where they come from, when their words were written."""
