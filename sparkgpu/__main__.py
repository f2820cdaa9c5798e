"""``python -m sparkgpu``: the same command line as ``sparkgpu``."""

from sparkgpu.cli import main

if __name__ == "__main__":
    main()
