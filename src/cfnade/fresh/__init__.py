"""Models that stay fresh: trained on what has come since, published if not worse, rolled back."""
