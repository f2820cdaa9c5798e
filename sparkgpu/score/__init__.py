"""The one scorer: metrics, paired comparison and blending of predictions, all from plain arrays.

``scorer.align`` joins predictions to labels, ``metrics.compute`` scores them, ``compare.compare`` says
whether a difference is real, ``blend.blend_weights`` mixes models. Nothing here reads a file. This module
imports nothing: scikit-learn (about a second) and scipy load at the first call that needs them.
"""
