"""Ways to run a round: whatever the way, the same reports and the same mean."""
