"""Several finished runs side by side: what `sparkgpu compare` ranks, and the page that it writes.

It reads the files of the runs and changes none. Models are ranked only where they were scored on the same
test rows.
"""
