"""What a model's processors make of seeded images, videos and sounds."""
