"""The report: findings in words, tables and drawings of rows that others made."""
