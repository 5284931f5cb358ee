"""What tests need: models, networks, tasks, streams and files, made small, and values that boards gave."""
