"""Where training rows are kept, and how they become batches."""
