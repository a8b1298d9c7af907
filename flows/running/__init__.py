"""How a study is carried out: planned, priced, accounted for, in processes, on a pool, under Prefect."""
