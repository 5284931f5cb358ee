"""The debugger for command streams: jobs that run word by word, forwards and backwards ([debugger.md])."""
