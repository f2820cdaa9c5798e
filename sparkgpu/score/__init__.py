"""The one scorer: metrics, paired comparison and blending of predictions, all from plain arrays.

``predictions.align`` joins predictions to labels, ``metrics.compute`` scores them, ``compare.compare``
says whether a difference is real, ``blend.blend_weights`` mixes models. Only ``predictions`` reads files,
those of a run. Nothing is imported by this module: scikit-learn (about a second) and scipy load at the
first call that needs them.
"""
