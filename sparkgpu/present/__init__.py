"""What people see of runs: one table model of results as page, Markdown, terminal, DataFrame and pictures.

It reads the files of runs and changes none but reports. Importing it loads nothing.
"""
