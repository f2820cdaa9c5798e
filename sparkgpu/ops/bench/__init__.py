"""``sparkgpu bench``: trains the network alone in several configurations, and prints what each brought."""
