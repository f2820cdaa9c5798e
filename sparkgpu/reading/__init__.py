"""Reading a run in Python: its results as DataFrames and pictures, and how it shows in a notebook.

It reads the files of a run and changes none. Nothing here imports pandas or matplotlib before it is asked for
a frame or a picture.
"""
