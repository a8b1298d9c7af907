"""Estimators, intervals, tests and study designs. The functions take arrays and return numbers."""
