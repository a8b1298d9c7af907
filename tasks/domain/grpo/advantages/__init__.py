"""What a group's rewards make each of its rollouts weigh."""
