"""The report: findings in sentences, tables and charts from other stages' rows."""
