"""Estimators, intervals, tests and designs: arrays in, numbers out."""
