"""One objective a file: what a group's rewards make each of its rollouts weigh."""
