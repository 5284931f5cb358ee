"""Custom operators of public TFLite files that no runtime here has, computed with numpy on the host.

`registry` knows them by name, and `runtime` computes programs of them; the other modules have the operators.
"""
