"""Where training rows lie and how batches are made of them."""
