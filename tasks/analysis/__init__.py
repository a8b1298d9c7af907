"""Pure functions over Arrow tables that ask in SQL: the counting half of the stages. No IO, no Prefect, no engine."""
