"""The report: sentences, tables and charts from the rows of other stages."""
