"""Why the models of a run answer as they do: importance and partial dependence of the features.

It loads the models as `predict/` does, so it runs as a process of its own
(``python -m sparkgpu.predict.explain``).
"""
