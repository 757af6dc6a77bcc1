"""What a user writes: read, validated, mistakes in one message."""
