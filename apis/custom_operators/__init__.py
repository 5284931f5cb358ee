"""Custom operators of public TFLite files that no runtime here has, computed with numpy on the host.

`pyproject.toml` names their functions as entry points; `rkcosim.compiler.custom_operators` runs them.
"""
